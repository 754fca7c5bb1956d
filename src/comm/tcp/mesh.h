#ifndef TFD_COMM_TCP_MESH_H
#define TFD_COMM_TCP_MESH_H
/* What providers of several processes have in common: connections between all
** processes, by which they find each other, hear who is gone, silent or has
** failed, and send frames. A provider that moves its data in another way uses
** it for the rest. */

#include "comm/private.h"

/* --- frames --------------------------------------------------------------- */

enum { TFD_FRAME_BYTES = 96, TFD_PLACE_BYTES = 40, TFD_NOTE_BYTES = 4096 };

typedef enum tfd__frame_type {
  TFD_FRAME_DATA = 1,
  TFD_FRAME_BEAT,
  TFD_FRAME_BYE,     /* exit status in `count` */
  TFD_FRAME_ABORT,   /* code in `tag`, exit code in `count`, text as payload */
  TFD_FRAME_REFUSAL, /* likewise, of one whose meeting has failed */
  TFD_FRAME_TYPES
} tfd__frame_type;

/* A header; all but `type` and `length` are data's. Heartbeats have the
** process's progress: number, what, elements and place of the collective that
** it began last. */
typedef struct tfd__frame {
  uint32_t type;
  uint32_t tag;    /* which part of the collective */
  uint64_t seq;    /* which collective of the group, from 1 */
  uint64_t what;   /* kind, operation, dtype, root: see tcp.c */
  uint64_t count;  /* elements of the value, over all ranks the same */
  uint64_t length; /* bytes that follow */
  uint32_t sum;    /* CRC-32C of them */
  uint32_t line;   /* of the script that called it; 0 = unknown */
  char file[TFD_PLACE_BYTES]; /* its name's end; for messages alone */
} tfd__frame;

/* Where the script called the collective. */
void tfd__frame_set_place(tfd__frame *f, const tfd__collective *c);

/* What is called, and where. */
void tfd__frame_text(const tfd__frame *f, char *text, size_t bytes);

/* Is what process `there` sends what process `here` waits for? Errors:
** RuntimeError: the processes run apart, with what each calls and where. */
int tfd__frame_fits(const tfd__frame *want, const tfd__frame *got, int here,
                    int there);

/* --- mesh ----------------------------------------------------------------- */

typedef struct tfd__mesh tfd__mesh;

/* Bytes to one process or from it. Filled in by the caller, who leaves it and
** the memory alone until it is done. */
typedef struct tfd__post {
  struct tfd__post *next;
  int process;
  tfd__frame frame;
  void *data;
  size_t moved; /* header included when sent */
  uint8_t header[TFD_FRAME_BYTES];
  bool written; /* the header; when it is the first that is sent */
  bool done;
} tfd__post;

/* Can the processes of this group be found at all? `name` is the provider's, in
** messages. Errors: Unavailable. */
int tfd__mesh_can(const tfd__group_config *config, const char *name);
/* Do all addresses name one host? Then it may still be several machines, behind
** a name or in containers. */
bool tfd__is_one_host(const tfd__network *network);
/* Do these name the same host? */
bool tfd__same_host(const char *a, const char *b);
/* Find all other processes. *mesh_p is set before the group can fail.
** Blocks: as tfd__meet. Errors: as tfd__meet. */
int tfd__mesh_open(tfd__group *g, const tfd__group_config *config,
                   tfd__mesh **mesh_p);
/* The same in two steps, for who asks between them whether all have met: until
** the second no group fails because somebody hangs up. */
struct tfd__peer_sockets;
int tfd__mesh_meet(const tfd__network *network, int local,
                   struct tfd__peer_sockets **sockets_p);
/* Takes the sockets, also when it fails. */
int tfd__mesh_new(tfd__group *g, const tfd__network *network,
                  struct tfd__peer_sockets *sockets, tfd__mesh **mesh_p);
/* Or they part again. */
void tfd__mesh_part(const tfd__network *network,
                    struct tfd__peer_sockets *sockets);
/* Says farewell unless the group has failed. */
void tfd__mesh_free(tfd__mesh *mesh);

/* Some of a mesh's processes, or all, with numbers of their own. */
typedef struct tfd__circle {
  tfd__mesh *mesh;
  bool owned;
  int process; /* this one */
  int processes;
  int numbers[TFD_MAX_LOCAL_RANKS]; /* in the mesh */
} tfd__circle;

/* Those that have met, or all who do now; circle->mesh as mesh_p above. */
int tfd__circle_open(tfd__group *g, const tfd__group_config *config,
                     tfd__circle *circle);
void tfd__circle_close(tfd__circle *circle);
/* The group that has failed when the mesh has. */
tfd__group *tfd__mesh_group(const tfd__mesh *mesh);

void tfd__mesh_send(tfd__mesh *mesh, tfd__post *p);
void tfd__mesh_receive(tfd__mesh *mesh, tfd__post *p);
/* Wait until n posts are done; false when `until` has passed first or the group
** has failed. */
bool tfd__mesh_wait(tfd__mesh *mesh, tfd__post *const *posts, int n,
                    tfd__deadline until);
/* The group has failed: wait until no post is touched any more. */
void tfd__mesh_settle(tfd__mesh *mesh);
/* Has the process said farewell? It will never send anything again. */
bool tfd__mesh_has_left(const tfd__mesh *mesh, int process);
/* As tfd__provider.late. Threads: any. */
void tfd__mesh_late(tfd__mesh *mesh, uint64_t number, char *text, size_t bytes);
/* Does everybody whose heartbeat tells of the same collective call the same
** one? Numbers of elements are all_reduces' alone. Errors: RuntimeError: the
** processes run apart. */
int tfd__mesh_compare(tfd__mesh *mesh, const tfd__progress *mine);
/* Fail with: this process waits for one that has left. Errors: RuntimeError
** with the exit code of processes that run apart; Unavailable where that one
** has ended with a status other than 0. */
int tfd__mesh_fail_left(const tfd__mesh *mesh, int process,
                        uint64_t collective);
/* Tell all others why the group has failed here. Threads: any. */
void tfd__mesh_abort(tfd__mesh *mesh, const tfd__error *cause);

#endif
