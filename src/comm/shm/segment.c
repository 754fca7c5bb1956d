/* One memory for all processes.
**
** Everybody tells everybody over the mesh which machine it is on and who it is;
** process 0 makes the memory and hands it out over a socket without a name in
** the file system, to those of its own user who know the token that only the
** mesh has carried. At the end all tell whether they have it: either everybody
** does, or nobody uses it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/shm/shm.h"
#include "comm/tcp/tcp.h"

#define HAND_OUT_SECONDS 10.0
/* A longer step of a loop that looks fifty times a second is a pause of the
** process, and nobody's delay. */
#define PAUSE_NS 1000000000
enum { LOOK_MS = 20 };

/* A slot of few processes, all slots of many together, the least. */
enum { SLOT = 512 << 10, ALL_SLOTS = 64 << 20, LEAST_SLOT = 64 << 10 };
/* An arena of few processes, all arenas of many. No page of them is there
** before it is needed. */
#define ARENA ((size_t)512 << 20)
#define ALL_ARENAS ((size_t)4 << 30)
enum { PAGE = 4096, NAME_BYTES = 32 };

/* What one process tells all. Same build on the same machine, or it does not
** count: its layout is the compiler's. */
typedef struct facts {
  char machine[40]; /* boot id; "" = unknown */
  uint64_t user;
  uint64_t layout; /* of what lies in the segment */
  uint8_t token[TFD_NONCE_BYTES];
  char name[NAME_BYTES]; /* process 0's socket */
  uint32_t name_bytes;
  uint32_t able; /* nothing has failed so far */
} facts;

typedef struct opening {
  tfd__group *group; /* that has failed when the mesh has */
  const tfd__circle *circle;
  const tfd__network *network;
  tfd__segment *segment;
  facts *all;
  tfd__post *posts;
  tfd__post **waited;
  int listener;
  int memory;
} opening;

/* --- telling all ---------------------------------------------------------- */

static void post_facts(opening *o, bool send, int process, int turn) {
  int n = o->network->processes;
  facts *f = &o->all[send ? o->network->process : process];
  tfd__post *p = &o->posts[send ? process : n + process];

  *p = (tfd__post){.process = o->circle->numbers[process],
                   .data = f,
                   .frame = {.tag = (uint32_t)turn, .length = sizeof *f}};
  if (send) {
    tfd__mesh_send(o->circle->mesh, p);
  } else {
    tfd__mesh_receive(o->circle->mesh, p);
  }
}

/* An interrupt is a failure of all. */
static int check(const opening *o) {
  TFD_TRY(tfd__group_check(o->group, "group"));
  if (!tfd__interrupt_get()) return TFD_OK;
  tfd__group_abort(o->group, "interrupted while processes meet");
  return tfd__group_check(o->group, "group");
}

/* All get all facts. Errors: what failed the group. */
static int tell(opening *o, int turn) {
  int n = o->network->processes;
  int waited = 0;
  int p;

  for (p = 0; p < n; p++) {
    if (p == o->network->process) continue;
    post_facts(o, true, p, turn);
    post_facts(o, false, p, turn);
    o->waited[waited++] = &o->posts[p];
    o->waited[waited++] = &o->posts[n + p];
  }
  while (!tfd__mesh_wait(o->circle->mesh, o->waited, waited,
                         tfd__deadline_in(0.02))) {
    int rc = check(o);

    if (rc == TFD_OK) continue;
    tfd__mesh_settle(o->circle->mesh);
    return rc;
  }
  return TFD_OK;
}

/* --- the memory ----------------------------------------------------------- */

static void plan(tfd__segment *s, int processes) {
  size_t slots = (size_t)processes * TFD_DEPTH * 2;
  size_t cells = (size_t)processes * sizeof(tfd__cell);

  s->arena_bytes = ALL_ARENAS / (size_t)processes / PAGE * PAGE;
  if (s->arena_bytes > ARENA) s->arena_bytes = ARENA;
  s->slot = SLOT;
  while (s->slot > LEAST_SLOT && s->slot * slots > ALL_SLOTS) s->slot /= 2;
  s->front = (cells + PAGE - 1) / PAGE * PAGE;
  s->bytes = s->front + s->arena_bytes * (size_t)processes + s->slot * slots;
}

char *tfd__segment_slot(const tfd__segment *s, int process, uint64_t round,
                        bool results) {
  size_t index =
      ((size_t)process * 2 + results) * TFD_DEPTH + round % TFD_DEPTH;

  return (char *)s->memory + s->bytes - s->slot * (index + 1);
}

/* Pages outside the arenas are there, and its size stays. */
static int make_memory(opening *o) {
  int fd = memfd_create("tfdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const tfd__segment *s = o->segment;
  size_t slots = s->front + s->arena_bytes * (size_t)o->network->processes;

  if (fd < 0) return fd;
  o->memory = fd;
  if (ftruncate(fd, (off_t)s->bytes) != 0 ||
      posix_fallocate(fd, 0, (off_t)s->front) != 0 ||
      posix_fallocate(fd, (off_t)slots, (off_t)(s->bytes - slots)) != 0) {
    return -1;
  }
  return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

static bool map_memory(opening *o) {
  tfd__segment *s = o->segment;
  void *at = MAP_FAILED;
  off_t bytes = o->memory < 0 ? 0 : lseek(o->memory, 0, SEEK_END);

  if (bytes != (off_t)s->bytes) return false;
  at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, o->memory, 0);
  if (at == MAP_FAILED) return false;
  s->memory = at;
  s->cells = at;
  if (tfd__arena_new(at, s->bytes, o->memory,
                     s->front + s->arena_bytes * (size_t)o->network->process,
                     s->arena_bytes, &s->arena) != TFD_OK) {
    return false;
  }
  o->memory = -1;
  return true;
}

/* --- handing it out ------------------------------------------------------- */

/* A socket under a name that the system makes up. */
static int make_listener(opening *o, facts *mine) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  socklen_t bytes = sizeof at;
  size_t base = offsetof(struct sockaddr_un, sun_path);
  int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

  o->listener = s;
  if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof(sa_family_t)) != 0 ||
      listen(s, TFD_MAX_LOCAL_RANKS) != 0 ||
      getsockname(s, (struct sockaddr *)&at, &bytes) != 0 ||
      bytes - base > NAME_BYTES) {
    return -1;
  }
  mine->name_bytes = (uint32_t)(bytes - base);
  memcpy(mine->name, at.sun_path, mine->name_bytes);
  return 0;
}

static bool is_same_user(int s) {
  struct ucred who = {0};
  socklen_t bytes = sizeof who;

  return getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
         who.uid == geteuid();
}

static void set_patience(int s) {
  struct timeval t = {.tv_sec = 1};

  (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  (void)setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* How long this process goes on with handing out. */
typedef struct patience {
  int64_t left; /* ns in which it runs */
  int64_t looked;
} patience;

static patience begin_to_wait(void) {
  return (patience){(int64_t)(HAND_OUT_SECONDS * 1e9), tfd__now_ns()};
}

/* Until something comes to s, but not for long; false = long enough. */
static bool look(const opening *o, patience *p, int s) {
  struct pollfd polled = {.fd = s, .events = POLLIN};
  int64_t took = 0;

  (void)poll(&polled, 1, LOOK_MS);
  took = tfd__now_ns() - p->looked;
  p->looked += took;
  if (took < PAUSE_NS) p->left -= took;
  return p->left > 0 && !o->group->failed && !tfd__interrupt_get();
}

static bool send_memory(int s, int fd) {
  char byte = 1;
  struct iovec part = {&byte, 1};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.room = {0}};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof control.room};
  struct cmsghdr *c = CMSG_FIRSTHDR(&message);

  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  return sendmsg(s, &message, MSG_NOSIGNAL) == 1;
}

/* False = no answer yet, or none at all. */
static bool receive_memory(int s, int *memory_p) {
  char byte = 0;
  struct iovec part = {&byte, 1};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.room = {0}};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.room,
                           .msg_controllen = sizeof control.room};
  struct cmsghdr *c = NULL;

  if (recvmsg(s, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return false;
  c = CMSG_FIRSTHDR(&message);
  if (c != NULL && c->cmsg_type == SCM_RIGHTS &&
      c->cmsg_len == CMSG_LEN(sizeof *memory_p)) {
    memcpy(memory_p, CMSG_DATA(c), sizeof *memory_p);
  }
  return true;
}

/* One who asks; true when it has got the memory. */
static bool serve(const opening *o, int s) {
  uint8_t token[TFD_NONCE_BYTES];

  if (!is_same_user(s)) return false;
  set_patience(s);
  return recv(s, token, sizeof token, MSG_WAITALL) == (ssize_t)sizeof token &&
         tfd__same_bytes(token, o->all[0].token, sizeof token) &&
         send_memory(s, o->memory);
}

static bool hand_out(opening *o) {
  patience p = begin_to_wait();
  int left = o->network->processes - 1;

  while (left > 0 && look(o, &p, o->listener)) {
    int s = accept4(o->listener, NULL, NULL, SOCK_CLOEXEC);

    if (s < 0) continue;
    if (serve(o, s)) left--;
    (void)close(s);
  }
  return left == 0;
}

/* A socket on which process 0 has been asked, -1 = it could not be. */
static int ask(const facts *f) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  socklen_t base = offsetof(struct sockaddr_un, sun_path);
  int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  if (s < 0) return -1;
  set_patience(s);
  memcpy(to.sun_path, f->name, f->name_bytes);
  if (connect(s, (struct sockaddr *)&to, base + f->name_bytes) == 0 &&
      is_same_user(s) &&
      send(s, f->token, sizeof f->token, MSG_NOSIGNAL) ==
          (ssize_t)sizeof f->token) {
    return s;
  }
  (void)close(s);
  return -1;
}

static bool has_ended(int s) {
  struct pollfd polled = {.fd = s, .events = POLLRDHUP};

  return poll(&polled, 1, 0) > 0;
}

/* Who was stopped between its words is not waited for, and asks again. */
static bool ask_for(opening *o) {
  patience p = begin_to_wait();
  int s = -1;

  do {
    bool ended = s >= 0 && has_ended(s); /* nothing comes after this look */

    if (s >= 0 && receive_memory(s, &o->memory)) break;
    if (ended) {
      (void)close(s);
      s = -1;
    }
    if (s < 0) s = ask(&o->all[0]);
  } while (look(o, &p, s));
  if (s >= 0) (void)close(s);
  return o->memory >= 0;
}

/* --- all together --------------------------------------------------------- */

static void read_machine(char *text, size_t bytes) {
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

  if (f == NULL) return;
  if (fgets(text, (int)bytes, f) == NULL) text[0] = '\0';
  (void)fclose(f);
}

static void know_myself(opening *o, facts *mine) {
  read_machine(mine->machine, sizeof mine->machine);
  mine->user = geteuid();
  mine->layout = o->segment->bytes << 16 | sizeof(tfd__cell);
  mine->able = mine->machine[0] != '\0';
  if (o->network->process != 0) return;
  mine->able = mine->able && make_memory(o) == 0 &&
               make_listener(o, mine) == 0 &&
               tfd__random_bytes(mine->token, sizeof mine->token) == TFD_OK;
}

/* Everybody sees the same facts and comes to the same end. */
static int judge(const opening *o) {
  const facts *first = &o->all[0];
  int p;

  for (p = 0; p < o->network->processes; p++) {
    const facts *f = &o->all[p];
    bool together = memcmp(f->machine, first->machine, sizeof f->machine) == 0;

    if (together && f->user == first->user && f->layout == first->layout &&
        f->able != 0) {
      continue;
    }
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"shm\" needs all processes on one "
                     "machine, of one user: process %d (%s) %s",
                     p, o->network->addresses[p],
                     !together                    ? "is on another machine"
                     : f->user != first->user     ? "is another user's"
                     : f->layout != first->layout ? "is another build"
                                                  : "cannot share memory");
  }
  if (first->name_bytes <= sizeof first->name) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE, "group: process 0 names no socket");
}

static int open_all(opening *o) {
  facts *mine = &o->all[o->network->process];

  know_myself(o, mine);
  TFD_TRY(tell(o, 0));
  TFD_TRY(judge(o));
  (void)TFD_FAIL(SHM_HAND);
  mine->able = o->network->process == 0 ? hand_out(o) : ask_for(o);
  TFD_TRY(check(o));
  mine->able = mine->able != 0 && map_memory(o);
  TFD_TRY(tell(o, 1));
  return judge(o);
}

int tfd__segment_open(const tfd__circle *circle, const tfd__network *network,
                      tfd__segment *segment) {
  size_t n = (size_t)network->processes;
  opening o = {.group = tfd__mesh_group(circle->mesh),
               .circle = circle,
               .network = network,
               .segment = segment,
               .listener = -1,
               .memory = -1};
  int rc;

  *segment = (tfd__segment){0};
  plan(segment, network->processes);
  o.all = tfd__calloc(n, sizeof *o.all);
  o.posts = tfd__calloc(2 * n, sizeof *o.posts);
  o.waited = tfd__calloc(2 * n, sizeof(tfd__post *));
  rc = o.all == NULL || o.posts == NULL || o.waited == NULL
           ? tfd__no_memory(2 * n * sizeof *o.posts, "group")
           : open_all(&o);
  if (o.listener >= 0) (void)close(o.listener);
  if (o.memory >= 0) (void)close(o.memory);
  tfd__free(o.all);
  tfd__free(o.posts);
  tfd__free(o.waited);
  if (rc != TFD_OK) tfd__segment_close(segment);
  return rc;
}

void tfd__segment_close(tfd__segment *s) {
  if (s->arena != NULL) {
    tfd__arena_drop(s->arena);
  } else if (s->memory != NULL) {
    (void)munmap(s->memory, s->bytes);
  }
  *s = (tfd__segment){0};
}
