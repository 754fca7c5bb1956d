/* Bytes of strangers: a header of frames, a hello, and all that is said before
** anything is believed; and what a process that knows the secret may say of why
** it refuses. Half of the inputs have their checksums made right, so
** that what lies behind them is reached. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "comm/tcp/hello.h"
#include "input.h"

static void mend(uint8_t *bytes, size_t n) {
  uint32_t sum = tfd__crc32c(0, bytes, n - 4);
  int i;

  for (i = 0; i < 4; i++) bytes[n - 4 + (size_t)i] = (uint8_t)(sum >> (8 * i));
}

static size_t fill(uint8_t *bytes, size_t n, const uint8_t *data, size_t size) {
  size_t m = size < n ? size : n;

  memset(bytes, 0, n);
  memcpy(bytes, data, m);
  return m;
}

/* What is read is written again with the same bits, in its bounds. */
static void read_frame(const uint8_t *data, size_t size, bool mended) {
  uint8_t bytes[TFD_FRAME_BYTES];
  uint8_t again[TFD_FRAME_BYTES];
  char text[192];
  tfd__frame f;

  (void)fill(bytes, sizeof bytes, data, size);
  memcpy(bytes, "TFDF", mended ? 4 : 0);
  if (mended) mend(bytes, sizeof bytes);
  if (!tfd__frame_read(bytes, &f)) return;
  MUST(f.type >= TFD_FRAME_DATA && f.type < TFD_FRAME_TYPES);
  MUST(memchr(f.file, 0, sizeof f.file) != NULL);
  tfd__frame_text(&f, text, sizeof text);
  MUST(strlen(text) < sizeof text);
  (void)tfd__frame_fits(&(tfd__frame){.type = TFD_FRAME_DATA}, &f, 0, 1);
  tfd__frame_write(&f, again);
  MUST(tfd__frame_read(again, &f));
}

static void read_hello(const uint8_t *data, size_t size, bool mended) {
  tfd__hello mine = {.process = 1, .processes = 4, .local = 1};
  uint8_t bytes[TFD_HELLO_BYTES];
  tfd__hello theirs;

  (void)fill(bytes, sizeof bytes, data, size);
  memcpy(bytes, "TFDC", mended ? 4 : 0);
  if (mended) mend(bytes, sizeof bytes);
  if (!tfd__hello_read(bytes, &theirs)) return;
  if (tfd__hello_judge(&mine, &theirs) != TFD_VERDICT_GOOD) return;
  MUST(theirs.process < mine.processes && theirs.process != mine.process);
  MUST(theirs.channel < TFD_CHANNELS);
}

static void talk_to_the_end(tfd__talk *t) {
  bool over = false;
  int i;

  for (i = 0; !over && i < 8; i++) {
    if (tfd__talk_go_on(t, &over) != TFD_OK) return;
  }
}

/* One connection to its end, whose other side says these bytes and hangs up:
** nobody agrees with a stranger that does not know the secret. */
static void hold_talk(const uint8_t *data, size_t size, bool mended) {
  tfd__network network = {
      .process = 1, .processes = 4, .secret = "between us", .secret_bytes = 10};
  tfd__hello mine = {.process = 1, .processes = 4, .local = 1};
  uint8_t bytes[TFD_TALK_BYTES];
  int pair[2];
  tfd__talk t;

  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) return;
  size = fill(bytes, sizeof bytes, data, size);
  if (mended && size >= TFD_HELLO_BYTES) {
    memcpy(bytes, "TFDC", 4);
    mend(bytes, TFD_HELLO_BYTES);
  }
  (void)send(pair[1], bytes, size, MSG_NOSIGNAL);
  (void)shutdown(pair[1], SHUT_WR);
  if (tfd__talk_begin(&t, pair[0], false, &mine, &network) == TFD_OK) {
    talk_to_the_end(&t);
    MUST(!t.agreed);
    MUST(t.in_n <= sizeof t.in && t.out_n <= sizeof t.out);
  }
  (void)close(pair[0]);
  (void)close(pair[1]);
}

/* What those who have met may say, cut into frames. */
static void find_refusal(uint8_t *data, size_t size, bool mended) {
  char note[TFD_NOTE_BYTES + 1];
  tfd__frame f;

  if (mended && size >= TFD_FRAME_BYTES) {
    memcpy(data, "TFDF", 4);
    mend(data, TFD_FRAME_BYTES);
  }
  if (!tfd__refusal_find(data, size, &f, note)) return;
  MUST(f.type == TFD_FRAME_REFUSAL && f.length <= TFD_NOTE_BYTES);
  MUST(memchr(note, 0, sizeof note) != NULL);
}

/* Somebody who knows the secret, whose hello and verdict are these bytes: words
** of it are printable and end in the talk's own. */
static void be_told(const uint8_t *data, size_t size, bool mended) {
  const char *addresses[4] = {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3",
                              "127.0.0.1:4"};
  tfd__network network = {
      .process = 1, .processes = 4, .addresses = addresses, .transport = "tcp"};
  tfd__hello mine = {.process = 1, .processes = 4, .local = 1, .transport = 7};
  uint8_t bytes[TFD_TALK_BYTES];
  int pair[2];
  tfd__talk t;
  int i;

  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) return;
  (void)fill(bytes, sizeof bytes, data, size);
  memset(bytes + TFD_HELLO_BYTES, 0, TFD_PROOF_BYTES);
  memset(bytes + TFD_TALK_BYTES - TFD_PROOF_BYTES, 0, TFD_PROOF_BYTES);
  memcpy(bytes, "TFDC", mended ? 4 : 0);
  if (mended) mend(bytes, TFD_HELLO_BYTES);
  (void)send(pair[1], bytes, sizeof bytes, MSG_NOSIGNAL);
  if (tfd__talk_begin(&t, pair[0], true, &mine, &network) == TFD_OK) {
    talk_to_the_end(&t);
    MUST(memchr(t.told, 0, sizeof t.told) != NULL);
    MUST(memchr(t.why, 0, sizeof t.why) != NULL);
    for (i = 0; t.told[i] != 0; i++) {
      MUST(t.told[i] >= ' ' && t.told[i] <= '~');
    }
    if (t.proved && tfd__is_difference(t.verdict)) {
      MUST(tfd__fail_apart(&network, &t, 0) == TFD_FAILED_PRECONDITION);
    }
  }
  (void)close(pair[0]);
  (void)close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bool mended = size > 0 && (data[0] & 1) != 0;
  int which = size > 0 ? (data[0] >> 1) % 6 : 0;
  uint8_t copy[TFD_FRAME_BYTES * 4 + TFD_NOTE_BYTES];

  if (size == 0) return 0;
  data++;
  size--;
  if (which == 0) read_frame(data, size, mended);
  if (which == 1) read_hello(data, size, mended);
  if (which == 2 || which == 3) hold_talk(data, size, mended);
  if (which == 4) be_told(data, size, mended);
  if (which == 5) {
    size = size < sizeof copy ? size : sizeof copy;
    memcpy(copy, data, size);
    find_refusal(copy, size, mended);
  }
  return 0;
}
