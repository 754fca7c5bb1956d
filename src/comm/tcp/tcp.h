#ifndef TFD_COMM_TCP_H
#define TFD_COMM_TCP_H
/* Groups of several processes over TCP. Private to this folder.
**
** Files: secret (proofs), address (names to sockets), hello (what both sides of
** a connection say first), meet (every process finds every other), refuse (what
** is said where they differ), door (who comes after that), frame (what goes
** over a connection), mesh (who is there, and the thread that hears of it),
** lost (what is said of who is gone), control (a mesh beside other providers),
** data (moving frames of collectives), turns (whose turn it is to move), tcp
** (the provider: collectives made of frames).
**
** Any two processes have two connections: frames of collectives go over the
** first and are read when somebody waits for them, so a fast peer is held back
** by its socket; the second carries heartbeats, farewells and aborts and is
** always read.
** T1 Nothing is allocated for bytes of a peer: hellos and headers have fixed
**    sizes, payloads go where a collective waits for exactly as many.
** T2 A peer that does not prove the secret is believed nothing behind its hello
**    and its proof, and nothing that it says ends who listens. */

#include "comm/tcp/mesh.h"

/* --- secret --------------------------------------------------------------- */

enum { TFD_PROOF_BYTES = 32, TFD_NONCE_BYTES = 16 };

/* HMAC-SHA256. Errors: Unavailable without OpenSSL's libcrypto. */
int tfd__hmac(const void *key, size_t key_bytes, const void *data, size_t bytes,
              uint8_t proof[TFD_PROOF_BYTES]);
int tfd__random_bytes(void *p, size_t bytes);
/* In a time that does not tell where they differ. */
bool tfd__same_bytes(const void *a, const void *b, size_t bytes);

/* --- addresses ------------------------------------------------------------ */

/* What a host's name stands for, asked for on a thread of its own, as the
** answer may be long in coming; a number's is there at once. */
typedef struct tfd__lookup tfd__lookup;
struct addrinfo;
/* Errors: ValueError for what is no address. */
int tfd__lookup_begin(const char *address, bool passive, tfd__lookup **l_p);
/* False = not yet. The list is the lookup's; *error_p is getaddrinfo's. */
bool tfd__lookup_over(tfd__lookup *l, const struct addrinfo **list_p,
                      int *error_p);
/* Also before it is over. */
void tfd__lookup_end(tfd__lookup *l);

/* A socket that listens on "host:port", non-blocking.
** Blocks: until the host is known, and up to five seconds for somebody who has
**   the port to let go of it.
** Errors: ValueError for what is no address, NotFound for an unknown host,
**   Cancelled, Unavailable when it cannot be had: taken by somebody (who is
**   named if it can be told), or not this machine's. */
int tfd__listen(const char *address, int *socket_p);
/* Who listens on a port here, " (pid 812 'python3')"; "" = it cannot be told.
 */
void tfd__port_owner(unsigned port, char *text, size_t bytes);
/* The same on a port that the kernel chooses, whose number comes with it. */
int tfd__listen_any(const char *host, int *socket_p, int *port_p);
/* Begin to connect to one of the host's addresses, the next one in each turn;
** -1 = it failed at once, which may be for now, and *error_p is the system's
** errno. */
int tfd__connect(const struct addrinfo *list, int turn, int *error_p);
/* What such an error says, or one of getaddrinfo's, which are negative. */
const char *tfd__connect_error(int error);
bool tfd__is_loopback(const char *address);
/* Are those of this machine's own addresses that name one port different ones,
** whatever they are written as? "localhost:2222" is 127.0.0.1:2222 on one
** machine and [::1]:2222 on another.
** Errors: FailedPrecondition naming two. */
int tfd__check_apart(const tfd__network *n);
/* "10.0.0.3:41234", the other end of a connection. */
void tfd__far_end(int socket, char *text, size_t bytes);
enum { TFD_FAR_BYTES = 64 };
/* The next one who knocks, non-blocking, and from which host, which a
** connection that is reset tells no more; -1 = nobody, or an errno. */
int tfd__accept(int listener, char host[TFD_FAR_BYTES]);
/* Options that every connection has: no delay, dead hosts are noticed when
** nothing is on the way. */
void tfd__tune(int socket);
/* On control connections they are noticed then, too. Data may lie for as long
** as a process that is stopped does not read: there it would be wrong. */
void tfd__tune_control(int socket, double beat_timeout);

/* --- waiting -------------------------------------------------------------- */

/* For all connections of a meeting and those that wait outside. */
enum { TFD_POLL_MOST = 2 * TFD_MAX_LOCAL_RANKS + 64 + 2 };

/* poll(), but that entries without a descriptor do not count: the system
** refuses more entries than a process may have descriptors. revents are 0 when
** it fails or a signal ends it. n <= TFD_POLL_MOST. */
struct pollfd;
void tfd__poll(struct pollfd *all, int n, int ms);

/* --- hello ---------------------------------------------------------------- */

typedef enum tfd__channel {
  TFD_CHANNEL_DATA = 0,
  TFD_CHANNEL_CONTROL,
  TFD_CHANNELS
} tfd__channel;

enum {
  TFD_PROTOCOL = 5,
  TFD_HELLO_BYTES = 64,
  TFD_WHY_BYTES = 380,
  TFD_VERDICT_BYTES = 4 + TFD_WHY_BYTES + TFD_PROOF_BYTES
};

/* Who speaks, and what all must agree on. */
typedef struct tfd__hello {
  uint32_t protocol; /* theirs; what is written is TFD_PROTOCOL */
  uint32_t process;
  uint32_t processes;
  uint32_t local;     /* ranks of the process */
  uint32_t channel;   /* of this connection; who connects says which */
  uint64_t cluster;   /* hash of all addresses */
  uint32_t meeting;   /* of this process, from 1: all have the same ones */
  uint32_t pid;       /* on its own machine; for messages alone */
  uint32_t transport; /* tfd__transport_number of it */
  bool has_secret;
  uint8_t nonce[TFD_NONCE_BYTES];
} tfd__hello;

/* Why a connection is refused; both sides hear it. */
typedef enum tfd__verdict {
  TFD_VERDICT_GOOD = 0,
  TFD_VERDICT_PROTOCOL,
  TFD_VERDICT_CLUSTER,
  TFD_VERDICT_LOCAL,
  TFD_VERDICT_TRANSPORT,
  TFD_VERDICT_PROCESS,
  TFD_VERDICT_DUPLICATE,
  TFD_VERDICT_UNDER_WAY, /* the others have met without this process */
  TFD_VERDICT_LATER,     /* they will meet, but not yet */
  TFD_VERDICT_SECRET_MISSING,
  TFD_VERDICT_SECRET,
  TFD_VERDICTS
} tfd__verdict;

const char *tfd__verdict_text(tfd__verdict v);

/* 0 = NULL, which goes with all. */
uint32_t tfd__transport_number(const char *name);
void tfd__hello_write(const tfd__hello *h, uint8_t bytes[TFD_HELLO_BYTES]);
/* False for what is no hello; of another protocol only what frame.c says of all
** of them means what it says. */
bool tfd__hello_read(const uint8_t bytes[TFD_HELLO_BYTES], tfd__hello *h);
/* What `mine` thinks of who says `theirs`. */
tfd__verdict tfd__hello_judge(const tfd__hello *mine, const tfd__hello *theirs);

/* --- frames as bytes ------------------------------------------------------ */

void tfd__frame_write(const tfd__frame *f, uint8_t bytes[TFD_FRAME_BYTES]);
/* False when the bytes are no header. */
bool tfd__frame_read(const uint8_t bytes[TFD_FRAME_BYTES], tfd__frame *f);

/* --- door ----------------------------------------------------------------- */

/* Listen at the address, with the door's listener if there is one: it hears
** nobody then. Errors: as tfd__listen. */
int tfd__door_lend(const char *address, int *listener_p);
/* The end of a meeting, good or bad. After a good one the door stays open until
** as many groups have left. */
void tfd__door_return(const tfd__network *network, const tfd__hello *mine,
                      int listener, bool met);
void tfd__door_leave(void);
enum { TFD_ADDRESS_BYTES = 272 };
/* An address where this process can be found under the name `host`: the door's,
** or of a new listener on a port that the kernel chooses. The next meeting at
** this address has it, and hears all who knock from now on. Errors: as
** tfd__listen. */
int tfd__door_make(const char *host, char address[TFD_ADDRESS_BYTES]);
/* Close that listener, or give it back to the door, if no meeting has had it.
 */
void tfd__door_unmake(void);
/* Meetings that this process has had. */
uint32_t tfd__door_meetings(void);
/* Log that a connection from `host` was refused; one line in ten seconds for
** each host, with how many there were meanwhile. `who` as tfd__talk's.
** Threads: any. */
void tfd__say_refused(const char *address, const char *host, tfd__verdict v,
                      const char *who);

/* --- meeting -------------------------------------------------------------- */

typedef struct tfd__peer_sockets {
  int socket[TFD_CHANNELS];
  uint32_t pid; /* whose they are */
} tfd__peer_sockets;

/* Connect to all processes below this one and hear from all above. sockets has
** an entry for each process; its own stays empty.
** Blocks: until all are there or the network's start_timeout has passed; says
**   every ten seconds who is missing.
** A process that ends meanwhile is waited for again.
** Errors: DeadlineExceeded naming who is missing and why; FailedPrecondition
**   when a peer is of another cluster or secret, or this task is there twice;
**   Unavailable as tfd__listen. */
int tfd__meet(const tfd__network *network, int local,
              tfd__peer_sockets *sockets);
void tfd__hang_up(tfd__peer_sockets *sockets, int processes);

#endif
