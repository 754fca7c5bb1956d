/* One connection's first bytes: hello, proof, verdict from each side, all of
** fixed sizes. Who connects and who accepts do the same, so neither waits for
** the other before it has said what it is. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/tcp/hello.h"

enum { ROLE_CONNECTS = 'C', ROLE_ACCEPTS = 'A' };

static void say(tfd__talk *t, const void *bytes, size_t n) {
  memcpy(t->out + t->out_n, bytes, n);
  t->out_n += n;
}

int tfd__talk_begin(tfd__talk *t, int socket, bool connects,
                    const tfd__hello *mine, const tfd__network *network) {
  *t = (tfd__talk){.socket = socket,
                   .connects = connects,
                   .mine = *mine,
                   .network = network,
                   .wanted = TFD_HELLO_BYTES,
                   .until = tfd__deadline_in(TFD_TALK_SECONDS)};
  t->mine.has_secret = network->secret_bytes > 0;
  TFD_TRY(tfd__random_bytes(t->mine.nonce, TFD_NONCE_BYTES));
  tfd__hello_write(&t->mine, t->my_hello);
  say(t, t->my_hello, TFD_HELLO_BYTES);
  return TFD_OK;
}

/* Over who proves and both hellos, so that no proof serves twice. */
static int prove(const tfd__talk *t, bool connects, uint8_t *proof) {
  uint8_t text[1 + 2 * TFD_HELLO_BYTES];
  const uint8_t *first = t->connects ? t->my_hello : t->in;
  const uint8_t *second = t->connects ? t->in : t->my_hello;

  text[0] = connects ? ROLE_CONNECTS : ROLE_ACCEPTS;
  memcpy(text + 1, first, TFD_HELLO_BYTES);
  memcpy(text + 1 + TFD_HELLO_BYTES, second, TFD_HELLO_BYTES);
  memset(proof, 0, TFD_PROOF_BYTES);
  if (t->network->secret_bytes == 0) return TFD_OK;
  return tfd__hmac(t->network->secret, t->network->secret_bytes, text,
                   sizeof text, proof);
}

static int hear_hello(tfd__talk *t) {
  uint8_t proof[TFD_PROOF_BYTES] = {0};

  if (!tfd__hello_read(t->in, &t->theirs)) {
    t->verdict = TFD_VERDICT_PROTOCOL;
  } else {
    t->verdict = tfd__hello_judge(&t->mine, &t->theirs);
  }
  if (t->verdict == TFD_VERDICT_GOOD) TFD_TRY(prove(t, t->connects, proof));
  say(t, proof, TFD_PROOF_BYTES);
  t->wanted = TFD_HELLO_BYTES + TFD_PROOF_BYTES;
  return TFD_OK;
}

static int hear_proof(tfd__talk *t) {
  uint8_t expected[TFD_PROOF_BYTES];
  uint8_t word[TFD_VERDICT_BYTES] = {0};

  if (t->verdict == TFD_VERDICT_GOOD) {
    TFD_TRY(prove(t, !t->connects, expected));
    if (!tfd__same_bytes(expected, t->in + TFD_HELLO_BYTES, TFD_PROOF_BYTES)) {
      t->verdict = TFD_VERDICT_SECRET;
    } else if (t->judge != NULL) {
      t->verdict = t->judge(t->arg, t);
    }
  }
  if (t->connects) (void)TFD_FAIL(NET_VERDICT);
  word[0] = (uint8_t)t->verdict;
  memcpy(word + 4, t->who, TFD_WHO_BYTES);
  say(t, word, TFD_VERDICT_BYTES);
  t->wanted += TFD_VERDICT_BYTES;
  return TFD_OK;
}

static void hear_verdict(tfd__talk *t) {
  const uint8_t *word = t->in + TFD_HELLO_BYTES + TFD_PROOF_BYTES;
  int i;

  if (t->verdict == TFD_VERDICT_GOOD) {
    t->verdict = (tfd__verdict)word[0];
    for (i = 0; i < TFD_WHO_BYTES - 1; i++) {
      uint8_t c = word[4 + i];

      t->who[i] = (char)(c == 0 || (c >= ' ' && c <= '~') ? c : '?');
    }
  }
  t->heard_all = true;
}

/* Everything that has come; false when the connection is over. */
static bool receive(tfd__talk *t) {
  ssize_t n = recv(t->socket, t->in + t->in_n, t->wanted - t->in_n, 0);

  if (n > 0) t->in_n += (size_t)n;
  if (n < 0 && errno != EAGAIN && errno != EINTR) t->error = errno;
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool send_rest(tfd__talk *t) {
  ssize_t n = send(t->socket, t->out + t->out_done, t->out_n - t->out_done,
                   MSG_NOSIGNAL);

  if (n > 0) t->out_done += (size_t)n;
  if (n < 0 && errno != EAGAIN && errno != EINTR) {
    t->error = errno;
    return false;
  }
  return true;
}

int tfd__talk_go_on(tfd__talk *t, bool *over_p) {
  *over_p = true;
  if (t->out_done < t->out_n && !send_rest(t)) return TFD_OK;
  while (!t->heard_all) {
    size_t before = t->in_n;

    if (!receive(t)) return TFD_OK;
    if (t->in_n == t->wanted) {
      if (t->wanted == TFD_HELLO_BYTES) {
        TFD_TRY(hear_hello(t));
      } else if (t->wanted == TFD_HELLO_BYTES + TFD_PROOF_BYTES) {
        TFD_TRY(hear_proof(t));
      } else {
        hear_verdict(t);
      }
      if (!send_rest(t)) return TFD_OK;
    }
    if (t->in_n == before) break;
  }
  t->agreed =
      t->heard_all && t->out_done == t->out_n && t->verdict == TFD_VERDICT_GOOD;
  *over_p =
      (t->heard_all && t->out_done == t->out_n) || tfd__now_ns() > t->until;
  return TFD_OK;
}
