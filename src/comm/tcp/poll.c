/* Many entries for poll(), of which few have a descriptor. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/tcp/tcp.h"

void tfd__poll(struct pollfd *all, int n, int ms) {
  struct pollfd used[TFD_POLL_MOST];
  int at[TFD_POLL_MOST];
  int used_n = 0;
  int i;

  for (i = 0; i < n; i++) {
    all[i].revents = 0;
    if (all[i].fd < 0) continue;
    at[used_n] = i;
    used[used_n++] = all[i];
  }
  if (poll(used, (nfds_t)used_n, ms) < 0) {
    /* The limit fell below what is open: no circles without a wait. */
    if (errno != EINTR) (void)poll(NULL, 0, ms);
    return;
  }
  for (i = 0; i < used_n; i++) all[at[i]].revents = used[i].revents;
}
