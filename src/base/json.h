#ifndef TFD_BASE_JSON_H
#define TFD_BASE_JSON_H
/* L0 base: JSON text and values, by jansson, in memory of tfd__alloc's.
**
** Limits: TFD_JSON_DEPTH levels and TFD_JSON_BYTES of text, for a tree takes
** some thirty times its text. A key given twice is an error. */

#include <jansson.h>

#include "base/status.h"

#define TFD_JSON_DEPTH 64
#define TFD_JSON_BYTES ((size_t)64 << 20)

/* To be called before jansson is: its memory is tfd__alloc's, and from here on
** tfd__json_short says whether this thread lacked some. (jansson itself does
** not tell that from text that is not UTF-8.) */
void tfd__json_begin(void);
bool tfd__json_short(void);

/* The value that n bytes of text say, of any type.
** Errors: ResourceExhausted; InvalidArgument without a record: the text is no
** JSON, and *error_p tells why and where. */
int tfd__json_read(const char *text, size_t n, json_t **value_p,
                   json_error_t *error_p);

/* The text of a value, with jansson's JSON_... flags for dumping.
** Owns: *text_p, for tfd__free. Errors: ResourceExhausted. */
int tfd__json_write(const json_t *value, size_t flags, char **text_p,
                    size_t *n_p);

#endif
