/* The Lua state and its memory: lists of equal blocks for small objects.
**
** A script that works on tensors makes and drops a handle for each op; malloc
** and free would be a fifth of the op's cost. Blocks of up to LARGEST bytes
** come from a list for each multiple of UNIT; a list that is empty is filled
** from chunks. Invariants:
** M1 A block's list follows from the size Lua asked for, and Lua names that
**    size again when it frees or resizes the block: blocks need no header.
** M2 Chunks are given back when the state is closed, not before: Lua's small
**    objects come and go, and the lists keep their room for the next ones.
** Lua 5.4 only: LuaJIT has an allocator of this kind. */
#include "host/host.h"

#if LUA_VERSION_NUM < 502
lua_State *tfd__state_new(void) {
  return luaL_newstate();
}

void tfd__state_close(lua_State *L) {
  lua_close(L);
}
#else
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT ((size_t)16) /* also every block's alignment */
#define CHUNK ((size_t)64 << 10)
#define MOST ((size_t)512)
/* Sanitizers must see every block. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LARGEST ((size_t)0)
#else
#define LARGEST MOST
#endif

typedef struct block {
  struct block *next;
} block;

typedef struct memory {
  block *free[MOST / UNIT + 1]; /* by rounded size / UNIT */
  block *chunks;                /* each begins with this link, padded to UNIT */
  char *cut;                    /* the rest of the newest chunk */
  size_t left;
  bool warns;  /* warnings are shown */
  bool inside; /* of a warning in several pieces */
} memory;

/* --- memory --------------------------------------------------------------- */

static size_t list_of(size_t bytes) {
  return (bytes + UNIT - 1) / UNIT;
}

/* A block for list k from a chunk; NULL without memory. */
static void *cut_block(memory *m, size_t k) {
  char *p = NULL;

  if (m->left < k * UNIT) {
    block *chunk = malloc(CHUNK);

    if (chunk == NULL) return NULL;
    chunk->next = m->chunks;
    m->chunks = chunk;
    m->cut = (char *)chunk + UNIT;
    m->left = CHUNK - UNIT;
  }
  p = m->cut;
  m->cut += k * UNIT;
  m->left -= k * UNIT;
  return p;
}

static void *take(memory *m, size_t bytes) {
  size_t k = list_of(bytes);
  block *b = NULL;

  if (bytes > LARGEST) return malloc(bytes);
  b = m->free[k];
  if (b == NULL) return cut_block(m, k);
  m->free[k] = b->next;
  return b;
}

static void give(memory *m, void *p, size_t bytes) {
  size_t k = list_of(bytes);
  block *b = p;

  if (bytes > LARGEST) {
    free(p);
    return;
  }
  b->next = m->free[k];
  m->free[k] = b;
}

static void *resize(memory *m, void *p, size_t from, size_t to) {
  void *moved = NULL;

  if (from > LARGEST && to > LARGEST) return realloc(p, to);
  if (from <= LARGEST && to <= LARGEST && list_of(from) == list_of(to))
    return p;
  moved = take(m, to);
  if (moved == NULL) {
    /* Lua relies on shrinking: a larger block serves on a smaller list. */
    return from <= LARGEST && to < from ? p : NULL;
  }
  memcpy(moved, p, from < to ? from : to);
  give(m, p, from);
  return moved;
}

/* See lua_Alloc: `from` is the block's size, or a type when there is none. */
static void *allocate(void *ud, void *p, size_t from, size_t to) {
  memory *m = ud;

  if (p == NULL) return to > 0 ? take(m, to) : NULL;
  if (to > 0) return resize(m, p, from, to);
  give(m, p, from);
  return NULL;
}

static void memory_free(memory *m) {
  block *b = m->chunks;

  while (b != NULL) {
    block *next = b->next;

    free(b);
    b = next;
  }
  free(m);
}

/* --- what luaL_newstate sets up ------------------------------------------- */

static int panic(lua_State *L) {
  const char *text = lua_tostring(L, -1);

  fprintf(stderr, "PANIC: unprotected error in call to Lua API (%s)\n",
          text != NULL ? text : "error object is not a string");
  fflush(stderr);
  return 0;
}

/* Off until "@on"; `more` says that the next piece belongs to this one. */
static void warn(void *ud, const char *piece, int more) {
  memory *m = ud;

  if (!m->inside && !more && piece[0] == '@') {
    if (strcmp(piece, "@on") == 0) m->warns = true;
    if (strcmp(piece, "@off") == 0) m->warns = false;
    return;
  }
  if (m->warns) {
    fprintf(stderr, "%s%s%s", m->inside ? "" : "Lua warning: ", piece,
            more ? "" : "\n");
    fflush(stderr);
  }
  m->inside = more != 0;
}

lua_State *tfd__state_new(void) {
  memory *m = calloc(1, sizeof *m);
  lua_State *L = NULL;

  if (m == NULL) return NULL;
  L = lua_newstate(allocate, m);
  if (L == NULL) {
    memory_free(m);
    return NULL;
  }
  lua_atpanic(L, panic);
  lua_setwarnf(L, warn, m);
  return L;
}

void tfd__state_close(lua_State *L) {
  void *ud = NULL;

  (void)lua_getallocf(L, &ud);
  lua_close(L);
  memory_free(ud);
}
#endif
