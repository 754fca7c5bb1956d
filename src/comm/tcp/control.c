/* Control beside a provider that moves data in its own way and hears of
** nobody's end: the mesh, at addresses that the processes tell each other by
** that provider. Its data connections stay empty.
**
** All have it or none: where one cannot be reached over TCP, collectives go on
** without, and who is stopped or silent is noticed by nobody. */
#include <stdio.h>
#include <string.h>

#include "comm/tcp/tcp.h"

/* All processes are there already; this is for their connections alone. */
#define MEET_SECONDS 30.0
#define LOOPBACK "127.0.0.1"

enum { SECRET_BYTES = 32 };

/* What a process tells of itself. */
typedef struct card {
  char address[TFD_ADDRESS_BYTES];
  uint8_t secret[SECRET_BYTES]; /* the first process's is everybody's */
  int32_t good;
} card;

static atomic_bool given_up; /* in all processes alike */

static bool is_one_host(const tfd__world *w) {
  int p;

  for (p = 1; p < w->processes; p++) {
    if (strcmp(w->hosts[p], w->hosts[0]) != 0) return false;
  }
  return true;
}

static bool are_good(const card *cards, int n) {
  while (n > 0 && cards[n - 1].good) n--;
  return n == 0;
}

/* `why` is this process's own reason, if it has one. */
static void give_up(const tfd__world *w, const card *cards, const char *why) {
  int bad = 0;

  given_up = true;
  while (bad < w->processes && cards[bad].good) bad++;
  if (bad != w->process) return;
  tfd__log(TFD_LOG_WARNING,
           "processes that are stopped will not be noticed, for there is no "
           "TCP between all: %s",
           why);
}

/* Made once in the life of the process: doors that earlier meetings have left
** open know no other. */
static int own_secret(uint8_t secret[SECRET_BYTES]) {
  static uint8_t kept[SECRET_BYTES];
  static bool there;

  if (!there) TFD_TRY(tfd__random_bytes(kept, sizeof kept));
  there = true;
  memcpy(secret, kept, sizeof kept);
  return TFD_OK;
}

/* Where the others are to be found; cards are all processes'. */
static tfd__network network_of(const tfd__group_config *config,
                               const card *cards, const char **addresses) {
  tfd__network network = *config->network;
  int p;

  for (p = 0; p < network.processes; p++) addresses[p] = cards[p].address;
  network.addresses = addresses;
  network.secret = cards[0].secret;
  network.secret_bytes = SECRET_BYTES;
  network.start_timeout = MEET_SECONDS;
  return network;
}

static void keep_reason(char *why, size_t bytes) {
  (void)snprintf(why, bytes, "%s", tfd_error_message());
}

/* Two rounds of cards: may everybody be found, and has everybody been? */
static int open_control(tfd__group *g, const tfd__group_config *config,
                        const tfd__world *w, tfd__tell *tell, void *arg,
                        card *all, tfd__mesh **mesh_p) {
  const char *host = is_one_host(w) ? LOOPBACK : w->hosts[w->process];
  const char *addresses[TFD_MAX_LOCAL_RANKS];
  card mine = {.good = 0};
  char why[256] = "";
  tfd__peer_sockets *sockets = NULL;
  tfd__network network = {0};
  int rc = own_secret(mine.secret);
  int p;

  if (rc == TFD_OK) rc = tfd__door_make(host, mine.address);
  if (rc != TFD_OK) keep_reason(why, sizeof why);
  mine.good = rc == TFD_OK;
  rc = tell(arg, &mine, all, sizeof mine);
  for (p = 0; p < w->processes; p++) {
    all[p].address[TFD_ADDRESS_BYTES - 1] = '\0';
  }
  if (rc == TFD_OK && are_good(all, w->processes)) {
    network = network_of(config, all, addresses);
    mine.good = tfd__mesh_meet(&network, config->local, &sockets) == TFD_OK;
    if (!mine.good) keep_reason(why, sizeof why);
    rc = tell(arg, &mine, all, sizeof mine);
  }
  tfd__door_unmake();
  if (rc == TFD_OK && are_good(all, w->processes)) {
    return tfd__mesh_new(g, &network, sockets, mesh_p);
  }
  if (rc == TFD_OK) give_up(w, all, why);
  if (sockets != NULL) tfd__mesh_part(&network, sockets);
  return rc;
}

int tfd__control_open(tfd__group *g, const tfd__group_config *config,
                      const tfd__world *w, tfd__tell *tell, void *arg,
                      tfd__mesh **control_p) {
  card *all = NULL;
  int rc;

  if (given_up || w->processes < 2 || w->processes > TFD_MAX_LOCAL_RANKS) {
    return TFD_OK;
  }
  all = tfd__calloc((size_t)w->processes, sizeof *all);
  if (all == NULL) return tfd__no_memory(sizeof *all, "group");
  rc = open_control(g, config, w, tell, arg, all, control_p);
  tfd__free(all);
  return rc;
}

void tfd__control_close(tfd__mesh *control) {
  if (control != NULL) tfd__mesh_free(control);
}

void tfd__control_abort(tfd__mesh *control, const tfd__error *cause) {
  if (control != NULL) tfd__mesh_abort(control, cause);
}

void tfd__control_late(tfd__mesh *control, uint64_t number, char *text,
                       size_t bytes) {
  text[0] = '\0';
  if (control != NULL) tfd__mesh_late(control, number, text, bytes);
}
