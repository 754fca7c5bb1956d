/* Groups of processes whose devices' memory the host does not reach: what they
** have goes through the host's, and over the transport of a group there. */
#include "comm_processes.h"
#include "slow_support.h"

static void every_case(void **state) {
  (void)state;
  run_all(all_cases, 1, 1);
  run_all(all_cases, 2, 1);
  run_all(all_cases, 3, 1);
  run_all(all_cases, 2, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case),
      cmocka_unit_test(a_process_that_dies_fails_the_others),
      cmocka_unit_test(other_roots_are_told),
      cmocka_unit_test(other_lengths_of_pieces_are_told),
      cmocka_unit_test(a_death_at_pieces_fails_the_others),
      cmocka_unit_test(an_abort_reaches_everybody_with_its_cause),
  };

  tested = "staged";
  find_device = slow_device;
  configure("2", "queued");
  configure_slow();
  setenv("TFDIST_SLOW_DEVICES", "2", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
