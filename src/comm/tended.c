/* What moves on only while somebody waits, by provider. Who waits in a group of
** one may be waited for in a group of another, whose collective the other
** processes must see the end of before they come here. */
#include <pthread.h>

#include "comm/private.h"

enum { MOST = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tfd__tend *list[MOST]; /* each once */
static int count;

void tfd__tended(tfd__tend *tend) {
  int i = 0;

  pthread_mutex_lock(&lock);
  while (i < count && list[i] != tend) i++;
  if (tend != NULL && i == count && count < MOST) list[count++] = tend;
  pthread_mutex_unlock(&lock);
}

bool tfd__tend_others(tfd__tend *own) {
  tfd__tend *others[MOST];
  bool some = false;
  int n = 0;
  int i;

  pthread_mutex_lock(&lock);
  for (i = 0; i < count; i++) {
    if (list[i] != own) others[n++] = list[i];
  }
  pthread_mutex_unlock(&lock);
  for (i = 0; i < n; i++) some = others[i]() || some;
  return some;
}
