/* Error records that are kept: a stream holds its first failure until somebody
** waits for it, on whatever thread. */
#include "base/memory.h"

void tfd__error_save(tfd__error *e) {
  tfd__error_free(e);
  e->code = (tfd_status)tfd__error_code();
  e->replica = tfd_error_replica();
  if (tfd_error_op()[0] != '\0') e->op = tfd_error_op();
  if (tfd_error_argument()[0] != '\0') e->argument = tfd_error_argument();
  e->bound = tfd_error_bound();
  e->exit = (tfd__exit)tfd_error_exit_code();
  e->message = tfd__strdup(tfd_error_message());
  if (tfd_error_hint()[0] != '\0') e->hint = tfd__strdup(tfd_error_hint());
  if (tfd_error_where()[0] != '\0') e->where = tfd__strdup(tfd_error_where());
  if (tfd_error_note()[0] != '\0') e->note = tfd__strdup(tfd_error_note());
}

int tfd__error_raise(const tfd__error *e) {
  const char *message = e->message;

  if (e->code == TFD_OK) return TFD_OK;
  if (message == NULL) message = "the message was lost, out of memory";
  (void)tfd__error_set(e->code, e->replica, message, e->hint, e->where);
  (void)tfd__exit_with(e->exit);
  (void)tfd__error_set_note(e->note);
  return tfd__blame(e->op, e->argument, e->bound);
}

void tfd__error_free(tfd__error *e) {
  tfd__free(e->message);
  tfd__free(e->hint);
  tfd__free(e->where);
  tfd__free(e->note);
  *e = (tfd__error){.code = TFD_OK, .replica = -1, .bound = -1};
}
