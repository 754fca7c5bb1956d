/* Loopback addresses that only the tests of one process have, so that no other
** program holds their ports. */
#ifndef SPEC_COMM_ADDRESSES_H
#define SPEC_COMM_ADDRESSES_H

#include <stdio.h>

enum { MOST = 5 };
static char addresses[MOST][32];
static const char *address_list[MOST];

static inline void make_addresses_of(int pid) {
  static int next = 20000;
  int i;

  next += MOST;
  for (i = 0; i < MOST; i++) {
    (void)snprintf(addresses[i], sizeof addresses[i], "127.%d.%d.%d:%d",
                   1 + (pid >> 15 & 127), pid >> 7 & 255, 1 + (pid & 127),
                   next + i);
    address_list[i] = addresses[i];
  }
}

#endif
