/* One connection's first bytes: hello, proof, verdict from each side, all of
** fixed sizes. Who connects and who accepts do the same, so neither waits for
** the other before it has said what it is. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "comm/tcp/hello.h"

enum { ROLE_CONNECTS = 'C', ROLE_ACCEPTS = 'A', VERDICTS_ROLE = 0x20 };
enum { WORD_BYTES = 4 + TFD_WHY_BYTES };

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
                   .transport = network->transport,
                   .wanted = TFD_HELLO_BYTES,
                   .until = tfd__deadline_in(TFD_TALK_SECONDS)};
  t->mine.has_secret = network->secret_bytes > 0;
  TFD_TRY(tfd__random_bytes(t->mine.nonce, TFD_NONCE_BYTES));
  tfd__hello_write(&t->mine, t->my_hello);
  say(t, t->my_hello, TFD_HELLO_BYTES);
  return TFD_OK;
}

/* Over who proves and both hellos, so that no proof serves twice, and over the
** word that follows; NULL = none does. */
static int prove(const tfd__talk *t, bool connects, const uint8_t *word,
                 uint8_t *proof) {
  uint8_t text[1 + 2 * TFD_HELLO_BYTES + WORD_BYTES];
  size_t n = sizeof text - WORD_BYTES;
  const uint8_t *first = t->connects ? t->my_hello : t->in;
  const uint8_t *second = t->connects ? t->in : t->my_hello;

  text[0] = connects ? ROLE_CONNECTS : ROLE_ACCEPTS;
  memcpy(text + 1, first, TFD_HELLO_BYTES);
  memcpy(text + 1 + TFD_HELLO_BYTES, second, TFD_HELLO_BYTES);
  memset(proof, 0, TFD_PROOF_BYTES);
  if (t->network->secret_bytes == 0) return TFD_OK;
  if (word != NULL) {
    text[0] |= VERDICTS_ROLE;
    memcpy(text + n, word, WORD_BYTES);
    n += WORD_BYTES;
  }
  return tfd__hmac(t->network->secret, t->network->secret_bytes, text, n,
                   proof);
}

/* A verdict that only somebody who has proved the secret may have caused is
** none before: whose talk breaks off is tried again. */
static int hear_hello(tfd__talk *t) {
  uint8_t proof[TFD_PROOF_BYTES] = {0};

  if (!tfd__hello_read(t->in, &t->theirs)) {
    t->verdict = TFD_VERDICT_PROTOCOL;
  } else {
    t->judged = tfd__hello_judge(&t->mine, &t->theirs);
    t->comparable = t->theirs.has_secret == t->mine.has_secret;
  }
  if (t->comparable) TFD_TRY(prove(t, t->connects, NULL, proof));
  say(t, proof, TFD_PROOF_BYTES);
  t->wanted = TFD_HELLO_BYTES + TFD_PROOF_BYTES;
  return TFD_OK;
}

/* Do they know the secret? Who does not is told nothing but the verdict. */
static int check_proof(tfd__talk *t) {
  uint8_t expected[TFD_PROOF_BYTES];

  if (t->verdict == TFD_VERDICT_GOOD) t->verdict = t->judged;
  if (!t->comparable) return TFD_OK;
  TFD_TRY(prove(t, !t->connects, NULL, expected));
  t->proved =
      tfd__same_bytes(expected, t->in + TFD_HELLO_BYTES, TFD_PROOF_BYTES);
  if (t->proved && t->verdict == TFD_VERDICT_GOOD && t->judge != NULL) {
    t->verdict = t->judge(t->arg, t);
  } else if (t->proved) {
    tfd__refusal_why(t);
  } else if (t->verdict != TFD_VERDICT_PROTOCOL) {
    t->verdict = TFD_VERDICT_SECRET;
  }
  return TFD_OK;
}

static int hear_proof(tfd__talk *t) {
  uint8_t word[TFD_VERDICT_BYTES] = {0};

  TFD_TRY(check_proof(t));
  if (t->connects) (void)TFD_FAIL(NET_VERDICT);
  word[0] = (uint8_t)t->verdict;
  memcpy(word + 4, t->why, TFD_WHY_BYTES);
  if (t->proved) TFD_TRY(prove(t, t->connects, word, word + WORD_BYTES));
  say(t, word, TFD_VERDICT_BYTES);
  t->wanted += TFD_VERDICT_BYTES;
  return TFD_OK;
}

/* False for a word that is not theirs. */
static int hear_verdict(tfd__talk *t, bool *theirs_p) {
  const uint8_t *word = t->in + TFD_HELLO_BYTES + TFD_PROOF_BYTES;
  uint8_t expected[TFD_PROOF_BYTES];
  int i;

  *theirs_p = true;
  t->heard_all = true;
  if (!t->proved) return TFD_OK; /* there is a verdict on it already */
  TFD_TRY(prove(t, !t->connects, word, expected));
  *theirs_p = tfd__same_bytes(expected, word + WORD_BYTES, TFD_PROOF_BYTES);
  if (!*theirs_p) return TFD_OK;
  if (t->verdict == TFD_VERDICT_GOOD) t->verdict = (tfd__verdict)word[0];
  for (i = 0; i < TFD_WHY_BYTES - 1; i++) {
    uint8_t c = word[4 + i];

    t->told[i] = (char)(c == 0 || (c >= ' ' && c <= '~') ? c : '?');
  }
  return TFD_OK;
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
  bool theirs = true;

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
        TFD_TRY(hear_verdict(t, &theirs));
      }
      if (!theirs) {
        t->error = EBADMSG;
        return TFD_OK;
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
