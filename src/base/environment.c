#include "base/environment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool tfd__env_text(const char *name, char text[TFD_ENV_TEXT]) {
  const char *p = getenv(name);
  size_t n = 0;

  if (p == NULL) return false;
  while (isspace((unsigned char)*p)) p++;
  n = strlen(p);
  while (n > 0 && isspace((unsigned char)p[n - 1])) n--;
  if (n >= TFD_ENV_TEXT) n = TFD_ENV_TEXT - 1;
  memcpy(text, p, n);
  text[n] = '\0';
  return n > 0;
}

int tfd__env_word(const char *name, const char *const *words, int n,
                  const char *expected, int *word_p) {
  char text[TFD_ENV_TEXT];
  int i;

  if (!tfd__env_text(name, text)) return TFD_OK;
  for (i = 0; i < n; i++) {
    if (strcasecmp(text, words[i]) != 0) continue;
    *word_p = i;
    return TFD_OK;
  }
  return tfd__fail(TFD_VALUE_ERROR, "%s is \"%s\"; expected %s", name, text,
                   expected);
}
