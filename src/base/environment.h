#ifndef TFD_BASE_ENVIRONMENT_H
#define TFD_BASE_ENVIRONMENT_H
/* L0 base: TFDIST_... variables, read by one rule: blanks around a value do
** not count, a value of blanks only is none, words are in any case, and what
** does not fit is a ValueError with name, value and expectation. */

#include "base/status.h"

enum { TFD_ENV_TEXT = 256 };

/* The variable's value into `text` without the blanks around it; false when
** there is none. Longer values are cut: no value that fits is that long. */
bool tfd__env_text(const char *name, char text[TFD_ENV_TEXT]);

/* Position of the variable's value among n words into *word_p, which is left
** alone when there is none. `expected` ends the message. */
int tfd__env_word(const char *name, const char *const *words, int n,
                  const char *expected, int *word_p);

/* tfd__log_level of TFDIST_LOG; *level_p is left alone when there is none. */
int tfd__env_log_level(int *level_p);

#endif
