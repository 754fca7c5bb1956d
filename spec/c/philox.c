/* Philox4x32-10 against the known answers its authors publish (Random123,
** kat_vectors), and the wide version against the plain one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/random/philox.h"

typedef struct answer {
  uint32_t counter[4];
  uint32_t key[2];
  uint32_t words[4];
} answer;

static const answer answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void block_gives_the_known_answers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
    uint32_t words[4];

    tfd__philox_block(answers[i].key, answers[i].counter, words);
    assert_memory_equal(answers[i].words, words, sizeof words);
  }
}

static void bulk_gives_the_known_answers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
    const answer *a = &answers[i];
    tfd__philox p = {{a->key[0], a->key[1]}, {a->counter[2], a->counter[3]}};
    uint32_t words[TFD_PHILOX_WORDS];

    tfd__philox_bulk(&p, (uint64_t)a->counter[1] << 32 | a->counter[0], words);
    assert_memory_equal(a->words, words, sizeof a->words);
  }
}

/* Also where the block number's lower half overflows in the middle. */
static void bulk_is_many_blocks(void **state) {
  static const uint64_t firsts[] = {
      0, 64, 12345, 0xfffffff0u, 0x123ffffffffu, UINT64_MAX - 30};
  tfd__philox p = {{7, 0xdeadbeef}, {3, 0xcafe}};

  (void)state;
  for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
    uint32_t words[TFD_PHILOX_WORDS];

    tfd__philox_bulk(&p, firsts[f], words);
    for (uint64_t i = 0; i < TFD_PHILOX_BLOCKS; i++) {
      uint64_t block = firsts[f] + i;
      uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 3,
                             0xcafe};
      uint32_t want[4];

      tfd__philox_block(p.key, counter, want);
      assert_memory_equal(want, words + 4 * i, sizeof want);
    }
  }
}

static void attributes_name_the_stream(void **state) {
  const int64_t ints[] = {9, 1, -1, 0x500000002, 4};
  tfd__philox p = tfd__philox_of(ints, 1);

  (void)state;
  assert_int_equal(1, p.key[0]);
  assert_int_equal(0xffffffff, p.key[1]);
  assert_int_equal(2, p.stream[0]);
  assert_int_equal(4, p.stream[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(block_gives_the_known_answers),
      cmocka_unit_test(bulk_gives_the_known_answers),
      cmocka_unit_test(bulk_is_many_blocks),
      cmocka_unit_test(attributes_name_the_stream),
  };

  return cmocka_run_group_tests_name("backend/cpu/philox", tests, NULL, NULL);
}
