/* Every public function with what it can be handed wrongly: NULL, handles of
** other kinds or none, bad lists and enums. It must refuse by its own name. */
#include "given.h"

static void devices_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_config_set_queue_mode((tfd_queue_mode)99));
  REFUSED(tfd_config_set_queue_mode((tfd_queue_mode)-1));
  REFUSED(tfd_config_set_gpu_devices(0, NULL, 1));
  REFUSED(tfd_test_failpoints(NULL));
  REFUSED(tfd_device_count("x", NULL));
  REFUSED(tfd_device_at("x", 0, NULL));
  REFUSED(tfd_device_find(NULL, OUT));
  REFUSED(tfd_device_find("x", NULL));
  BAD_GIVES(DEVICE, *tfd_device_name(bad), 0);
  BAD_GIVES(DEVICE, *tfd_device_short_name(bad), 0);
  BAD_GIVES(DEVICE, tfd_device_threads(bad), 0);
  BAD_GIVES(DEVICE, tfd_device_is_queued(bad), false);
  BAD(DEVICE, tfd_device_synchronize(bad));
  BAD(DEVICE, tfd_device_memory(bad, OUT, OUT, OUT));
  REFUSED(tfd_device_memory(G(DEVICE), NULL, OUT, OUT));
  REFUSED(tfd_device_memory(G(DEVICE), OUT, NULL, OUT));
  REFUSED(tfd_device_memory(G(DEVICE), OUT, OUT, NULL));
  BAD(DEVICE, tfd_device_reset_peak(bad));
  BAD(DEVICE, tfd_device_trim(bad));
  REFUSED(tfd_context_new(NULL));
  BAD_OPTIONAL(CONTEXT, tfd_context_enter(bad));
  BAD_OPTIONAL(DEVICE, tfd_device_push(bad));
  REFUSED(tfd_device_current(NULL));
  REFUSED(tfd_context_set_autocast(true, (tfd_dtype)99));
  REFUSED(tfd_context_set_autocast(true, TFD_INT32));
  REFUSED(tfd_context_set_update(0, NULL));
}

static void tensors_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_tensor_from_bytes(NULL, 1, TFD_FLOAT32, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_bytes(ONE, 1, (tfd_dtype)99, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_bytes(ONE, 1, (tfd_dtype)-1, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_bytes(ONE, 1, TFD_FLOAT32, NULL, 1, OUT));
  REFUSED(tfd_tensor_from_bytes(ONE, 1, TFD_FLOAT32, ONE, -1, OUT));
  REFUSED(tfd_tensor_from_bytes(ONE, 1, TFD_FLOAT32, ONE, 1, NULL));
  REFUSED(tfd_tensor_from_values(NULL, 1, TFD_FLOAT32, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_values(ONE, -1, TFD_FLOAT32, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_values(ONE, 1, (tfd_dtype)99, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_values(ONE, 1, (tfd_dtype)-1, ONE, 1, OUT));
  REFUSED(tfd_tensor_from_values(ONE, 1, TFD_FLOAT32, NULL, 1, OUT));
  REFUSED(tfd_tensor_from_values(ONE, 1, TFD_FLOAT32, ONE, -1, OUT));
  REFUSED(tfd_tensor_from_values(ONE, 1, TFD_FLOAT32, ONE, 1, NULL));
  BAD(TENSOR, tfd_tensor_read(bad, ONE, 1));
  REFUSED(tfd_tensor_read(G(TENSOR), NULL, 1));
  BAD(TENSOR, tfd_tensor_item(bad, 0, OUT));
  REFUSED(tfd_tensor_item(G(TENSOR), 0, NULL));
  BAD(TENSOR, tfd_tensor_crc(bad, OUT));
  REFUSED(tfd_tensor_crc(G(TENSOR), NULL));
  BAD(TENSOR, tfd_tensor_values(bad, ONE, 1));
  REFUSED(tfd_tensor_values(G(TENSOR), NULL, 1));
  REFUSED(tfd_tensor_values(G(TENSOR), ONE, -1));
  BAD(TENSOR, tfd_tensor_wait(bad));
  BAD(TENSOR, tfd_tensor_data(bad, OUT));
  REFUSED(tfd_tensor_data(G(TENSOR), NULL));
  BAD_GIVES(TENSOR, tfd_tensor_dtype(bad), (tfd_dtype)0);
  BAD_GIVES(TENSOR, tfd_tensor_rank(bad), 0);
  BAD_GIVES(TENSOR, tfd_tensor_dim(bad, 0), -1);
  BAD_GIVES(TENSOR, tfd_tensor_size(bad), 0);
  BAD_GIVES(TENSOR, tfd_tensor_is_dense(bad), false);
  BAD_GIVES(TENSOR, tfd_tensor_id(bad), 0);
  BAD(TENSOR, tfd_tensor_device(bad, OUT));
  REFUSED(tfd_tensor_device(G(TENSOR), NULL));
  BAD(TENSOR, tfd_tensor_to_device(bad, G(DEVICE), OUT));
  BAD(DEVICE, tfd_tensor_to_device(G(TENSOR), bad, OUT));
  REFUSED(tfd_tensor_to_device(G(TENSOR), G(DEVICE), NULL));
  REFUSED(tfd_dtype_find(NULL, OUT));
  REFUSED(tfd_dtype_find("x", NULL));
  BAD(TENSOR, tfd_slices_new(bad, G(TENSOR), ONE, 1, OUT));
  BAD(TENSOR, tfd_slices_new(G(TENSOR), bad, ONE, 1, OUT));
  REFUSED(tfd_slices_new(G(TENSOR), G(TENSOR), NULL, 1, OUT));
  REFUSED(tfd_slices_new(G(TENSOR), G(TENSOR), ONE, -1, OUT));
  REFUSED(tfd_slices_new(G(TENSOR), G(TENSOR), ONE, 1, NULL));
  BAD(SLICES, tfd_slices_values(bad, OUT));
  REFUSED(tfd_slices_values(G(SLICES), NULL));
  BAD(SLICES, tfd_slices_indices(bad, OUT));
  REFUSED(tfd_slices_indices(G(SLICES), NULL));
  BAD_GIVES(SLICES, tfd_slices_rank(bad), 0);
  BAD_GIVES(SLICES, tfd_slices_dim(bad, 0), -1);
  BAD(SLICES, tfd_slices_to_dense(bad, OUT));
  REFUSED(tfd_slices_to_dense(G(SLICES), NULL));
}

static void variables_look_at_what_they_get(void **state) {
  (void)state;
  BAD(KINDS, tfd_variable_new(bad, "x", false, G(DEVICE), OUT));
  BAD_OPTIONAL(DEVICE, tfd_variable_new(G(TENSOR), "x", false, bad, OUT));
  REFUSED(tfd_variable_new(G(TENSOR), "x", false, G(DEVICE), NULL));
  BAD(VARIABLE, tfd_variable_assign(bad, G(TENSOR)));
  BAD(KINDS, tfd_variable_assign(G(VARIABLE), bad));
  BAD(VARIABLE, tfd_variable_assign_add(bad, G(TENSOR)));
  BAD(KINDS, tfd_variable_assign_add(G(VARIABLE), bad));
  BAD(VARIABLE, tfd_variable_assign_sub(bad, G(TENSOR)));
  BAD(KINDS, tfd_variable_assign_sub(G(VARIABLE), bad));
  BAD(VARIABLE, tfd_variable_read(bad, OUT));
  REFUSED(tfd_variable_read(G(VARIABLE), NULL));
  BAD(VARIABLE, tfd_variable_update(bad, 0, LIST(TENSOR), 1, ONE, 1, ONE, 1));
  REFUSED(tfd_variable_update(G(VARIABLE), 0, NULL, 1, ONE, 1, ONE, 1));
  REFUSED(
      tfd_variable_update(G(VARIABLE), 0, LIST(TENSOR), -1, ONE, 1, ONE, 1));
  BAD_ENTRY(KINDS,
            tfd_variable_update(G(VARIABLE), 0, bad_list, 1, ONE, 1, ONE, 1));
  REFUSED(
      tfd_variable_update(G(VARIABLE), 0, LIST(TENSOR), 1, NULL, 1, ONE, 1));
  REFUSED(
      tfd_variable_update(G(VARIABLE), 0, LIST(TENSOR), 1, ONE, -1, ONE, 1));
  REFUSED(
      tfd_variable_update(G(VARIABLE), 0, LIST(TENSOR), 1, ONE, 1, NULL, 1));
  REFUSED(
      tfd_variable_update(G(VARIABLE), 0, LIST(TENSOR), 1, ONE, 1, ONE, -1));
  REFUSED(tfd_variables_update(NULL, 1, 0, LIST(TENSOR), 1, ONE, 1, ONE, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), -1, 0, LIST(TENSOR), 1, ONE, 1,
                               ONE, 1));
  BAD_ENTRY(VARIABLE, tfd_variables_update(bad_list, 1, 0, LIST(TENSOR), 1, ONE,
                                           1, ONE, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), 1, 0, NULL, 1, ONE, 1, ONE, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), 1, 0, LIST(TENSOR), -1, ONE, 1,
                               ONE, 1));
  BAD_ENTRY(KINDS, tfd_variables_update(LIST(VARIABLE), 1, 0, bad_list, 1, ONE,
                                        1, ONE, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), 1, 0, LIST(TENSOR), 1, NULL, 1,
                               ONE, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), 1, 0, LIST(TENSOR), 1, ONE, -1,
                               ONE, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), 1, 0, LIST(TENSOR), 1, ONE, 1,
                               NULL, 1));
  REFUSED(tfd_variables_update(LIST(VARIABLE), 1, 0, LIST(TENSOR), 1, ONE, 1,
                               ONE, -1));
  BAD_GIVES(VARIABLE, *tfd_variable_name(bad), 0);
  BAD_GIVES(VARIABLE, tfd_variable_is_trainable(bad), false);
  BAD_GIVES(VARIABLE, tfd_variable_version(bad), 0);
  BAD(VARIABLE, tfd_variable_set_distribution(bad, TFD_SYNCHRONIZATION_AUTO,
                                              TFD_AGGREGATION_NONE));
  REFUSED(tfd_variable_set_distribution(
      G(VARIABLE), (tfd_variable_synchronization)99, TFD_AGGREGATION_NONE));
  REFUSED(tfd_variable_set_distribution(
      G(VARIABLE), (tfd_variable_synchronization)-1, TFD_AGGREGATION_NONE));
  REFUSED(tfd_variable_set_distribution(G(VARIABLE), TFD_SYNCHRONIZATION_AUTO,
                                        (tfd_variable_aggregation)99));
  REFUSED(tfd_variable_set_distribution(G(VARIABLE), TFD_SYNCHRONIZATION_AUTO,
                                        (tfd_variable_aggregation)-1));
  BAD(VARIABLE, tfd_variable_set_autocast(bad, true));
}

static void operands_look_at_what_they_get(void **state) {
  (void)state;
  BAD_GIVES(VARIABLE, tfd_variable_synchronization_of(bad), 0);
  BAD_GIVES(VARIABLE, tfd_variable_aggregation_of(bad), 0);
  BAD(KINDS, tfd_operand_tensor(bad, OUT));
  REFUSED(tfd_operand_tensor(G(TENSOR), NULL));
}

static void ops_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_op_find(NULL, OUT));
  REFUSED(tfd_op_find("x", NULL));
  REFUSED(tfd_op_run(0, NULL, 1, ONE, 1, ONE, 1, ONE, 0, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), -1, ONE, 1, ONE, 1, ONE, 0, OUT));
  BAD_ENTRY(KINDS, tfd_op_run(0, bad_list, 1, ONE, 1, ONE, 1, ONE, 0, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), 1, NULL, 1, ONE, 1, ONE, 0, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), 1, ONE, -1, ONE, 1, ONE, 0, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), 1, ONE, 1, NULL, 1, ONE, 0, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), 1, ONE, 1, ONE, -1, ONE, 0, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), 1, ONE, 1, ONE, 1, NULL, 1, OUT));
  REFUSED(tfd_op_run(0, LIST(TENSOR), 1, ONE, 1, ONE, 1, ONE, 0, NULL));
}

static void tapes_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_tape_new(false, false, NULL));
  BAD(TAPE, tfd_tape_stop(bad));
  BAD(TAPE, tfd_tape_resume(bad));
  BAD_GIVES(TAPE, tfd_tape_is_recording(bad), false);
  BAD_GIVES(TAPE, tfd_tape_is_persistent(bad), false);
  BAD(TAPE, tfd_tape_keep(bad));
  BAD(TAPE, tfd_tape_watch(bad, G(TENSOR)));
  BAD(KINDS, tfd_tape_watch(G(TAPE), bad));
  BAD(TAPE, tfd_tape_reset(bad));
  BAD_GIVES(TAPE, tfd_tape_length(bad), 0);
  BAD(TAPE, tfd_tape_variable(bad, 0, OUT));
  REFUSED(tfd_tape_variable(G(TAPE), 0, NULL));
  BAD_GIVES(TAPE, tfd_tape_variable_count(bad), 0);
  REFUSED(tfd_tape_record_host(0, NULL, 1, LIST(TENSOR), 1));
  REFUSED(tfd_tape_record_host(0, LIST(TENSOR), -1, LIST(TENSOR), 1));
  BAD_ENTRY(KINDS, tfd_tape_record_host(0, bad_list, 1, LIST(TENSOR), 1));
  REFUSED(tfd_tape_record_host(0, LIST(TENSOR), 1, NULL, 1));
  REFUSED(tfd_tape_record_host(0, LIST(TENSOR), 1, LIST(TENSOR), -1));
  BAD_ENTRY(TENSOR, tfd_tape_record_host(0, LIST(TENSOR), 1, bad_list, 1));
}

static void walks_look_at_what_they_get(void **state) {
  (void)state;
  BAD(TAPE, tfd_walk_begin(bad, LIST(TENSOR), 1, LIST(TENSOR), 1, LIST(TENSOR),
                           1, false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), NULL, 1, LIST(TENSOR), 1, LIST(TENSOR), 1,
                         false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), LIST(TENSOR), -1, LIST(TENSOR), 1,
                         LIST(TENSOR), 1, false, OUT));
  BAD_ENTRY(KINDS, tfd_walk_begin(G(TAPE), bad_list, 1, LIST(TENSOR), 1,
                                  LIST(TENSOR), 1, false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, NULL, 1, LIST(TENSOR), 1,
                         false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, LIST(TENSOR), -1,
                         LIST(TENSOR), 1, false, OUT));
  BAD_ENTRY(KINDS, tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, bad_list, 1,
                                  LIST(TENSOR), 1, false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, LIST(TENSOR), 1, NULL, 1,
                         false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, LIST(TENSOR), 1,
                         LIST(TENSOR), -1, false, OUT));
  BAD_ENTRY(KINDS, tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, LIST(TENSOR), 1,
                                  bad_list, 1, false, OUT));
  REFUSED(tfd_walk_begin(G(TAPE), LIST(TENSOR), 1, LIST(TENSOR), 1,
                         LIST(TENSOR), 1, false, NULL));
  BAD(WALK, tfd_walk_next(bad, OUT));
  REFUSED(tfd_walk_next(G(WALK), NULL));
  BAD(WALK, tfd_walk_host(bad, OUT, OUT));
  REFUSED(tfd_walk_host(G(WALK), NULL, OUT));
  REFUSED(tfd_walk_host(G(WALK), OUT, NULL));
  BAD(WALK, tfd_walk_output_grad(bad, 0, OUT));
  REFUSED(tfd_walk_output_grad(G(WALK), 0, NULL));
  BAD(WALK, tfd_walk_supply(bad, LIST(TENSOR), 1));
  REFUSED(tfd_walk_supply(G(WALK), NULL, 1));
  REFUSED(tfd_walk_supply(G(WALK), LIST(TENSOR), -1));
  BAD_ENTRY(KINDS, tfd_walk_supply(G(WALK), bad_list, 1));
  BAD(WALK, tfd_walk_gradient(bad, 0, OUT));
  REFUSED(tfd_walk_gradient(G(WALK), 0, NULL));
}

static void strategies_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_strategy_new(NULL, LIST(DEVICE), 1, G(DEVICE), OUT));
  REFUSED(tfd_strategy_new("mirrored", NULL, 1, G(DEVICE), OUT));
  REFUSED(tfd_strategy_new("mirrored", LIST(DEVICE), -1, G(DEVICE), OUT));
  BAD_ENTRY(DEVICE, tfd_strategy_new("mirrored", bad_list, 1, G(DEVICE), OUT));
  BAD_OPTIONAL(DEVICE, tfd_strategy_new("mirrored", LIST(DEVICE), 1, bad, OUT));
  REFUSED(tfd_strategy_new("mirrored", LIST(DEVICE), 1, G(DEVICE), NULL));
  BAD_GIVES(STRATEGY, *tfd_strategy_kind(bad), 0);
  BAD_GIVES(STRATEGY, tfd_strategy_replica_count(bad), 0);
  BAD_GIVES(STRATEGY, tfd_strategy_local_count(bad), 0);
  BAD_GIVES(STRATEGY, tfd_strategy_first_replica(bad), 0);
  BAD(STRATEGY, tfd_strategy_enter(bad, 0, OUT));
  REFUSED(tfd_strategy_enter(S, 0, NULL));
  BAD(STRATEGY, tfd_strategy_leave(bad, 0, "", OUT));
  REFUSED(tfd_strategy_leave(S, 0, NULL, OUT));
  REFUSED(tfd_strategy_leave(S, 0, "", NULL));
  BAD_GIVES(STRATEGY, tfd_strategy_adds_up(bad), false);
  BAD(STRATEGY, tfd_strategy_device(bad, 0, OUT));
  REFUSED(tfd_strategy_device(S, 0, NULL));
  BAD_GIVES(STRATEGY, tfd_strategy_parameter_count(bad), 0);
  BAD(STRATEGY, tfd_strategy_parameter_device(bad, 0, OUT));
  REFUSED(tfd_strategy_parameter_device(S, 0, NULL));
  BAD(STRATEGY,
      tfd_strategy_place(bad, TFD_SYNCHRONIZATION_AUTO, "x", OUT, OUT));
  REFUSED(
      tfd_strategy_place(S, (tfd_variable_synchronization)99, "x", OUT, OUT));
  REFUSED(
      tfd_strategy_place(S, (tfd_variable_synchronization)-1, "x", OUT, OUT));
  REFUSED(tfd_strategy_place(S, TFD_SYNCHRONIZATION_AUTO, NULL, OUT, OUT));
  REFUSED(tfd_strategy_place(S, TFD_SYNCHRONIZATION_AUTO, "x", NULL, OUT));
  REFUSED(tfd_strategy_place(S, TFD_SYNCHRONIZATION_AUTO, "x", OUT, NULL));
  BAD(STRATEGY, tfd_strategy_reduce(bad, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1,
                                    LIST(DEVICE), 1, 0, OUT));
  REFUSED(tfd_strategy_reduce(S, (tfd_reduce_op)99, "x", LIST(TENSOR), 1,
                              LIST(DEVICE), 1, 0, OUT));
  REFUSED(tfd_strategy_reduce(S, (tfd_reduce_op)-1, "x", LIST(TENSOR), 1,
                              LIST(DEVICE), 1, 0, OUT));
  REFUSED(tfd_strategy_reduce(S, TFD_REDUCE_SUM, NULL, LIST(TENSOR), 1,
                              LIST(DEVICE), 1, 0, OUT));
  REFUSED(tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", NULL, 1, LIST(DEVICE), 1,
                              0, OUT));
  REFUSED(tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), -1,
                              LIST(DEVICE), 1, 0, OUT));
  BAD_ENTRY(KINDS, tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", bad_list, 1,
                                       LIST(DEVICE), 1, 0, OUT));
  REFUSED(tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1, NULL, 1,
                              0, OUT));
  REFUSED(tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1,
                              LIST(DEVICE), -1, 0, OUT));
  BAD_ENTRY(DEVICE, tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1,
                                        bad_list, 1, 0, OUT));
  REFUSED(tfd_strategy_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1,
                              LIST(DEVICE), 1, 0, NULL));
  BAD(STRATEGY,
      tfd_strategy_all_reduce(bad, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1, OUT));
}

static void sums_and_updates_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(
      tfd_strategy_all_reduce(S, (tfd_reduce_op)99, "x", LIST(TENSOR), 1, OUT));
  REFUSED(
      tfd_strategy_all_reduce(S, (tfd_reduce_op)-1, "x", LIST(TENSOR), 1, OUT));
  REFUSED(
      tfd_strategy_all_reduce(S, TFD_REDUCE_SUM, NULL, LIST(TENSOR), 1, OUT));
  REFUSED(tfd_strategy_all_reduce(S, TFD_REDUCE_SUM, "x", NULL, 1, OUT));
  REFUSED(
      tfd_strategy_all_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), -1, OUT));
  BAD_ENTRY(KINDS,
            tfd_strategy_all_reduce(S, TFD_REDUCE_SUM, "x", bad_list, 1, OUT));
  REFUSED(
      tfd_strategy_all_reduce(S, TFD_REDUCE_SUM, "x", LIST(TENSOR), 1, NULL));
  BAD(STRATEGY,
      tfd_strategy_update(bad, 0, LIST(VARIABLE), 1, LIST(TENSOR), 1, ONE, 1));
  REFUSED(tfd_strategy_update(S, 0, NULL, 1, LIST(TENSOR), 1, ONE, 1));
  REFUSED(
      tfd_strategy_update(S, 0, LIST(VARIABLE), -1, LIST(TENSOR), 1, ONE, 1));
  BAD_ENTRY(VARIABLE,
            tfd_strategy_update(S, 0, bad_list, 1, LIST(TENSOR), 1, ONE, 1));
  REFUSED(tfd_strategy_update(S, 0, LIST(VARIABLE), 1, NULL, 1, ONE, 1));
  REFUSED(
      tfd_strategy_update(S, 0, LIST(VARIABLE), 1, LIST(TENSOR), -1, ONE, 1));
  BAD_ENTRY(KINDS,
            tfd_strategy_update(S, 0, LIST(VARIABLE), 1, bad_list, 1, ONE, 1));
  REFUSED(
      tfd_strategy_update(S, 0, LIST(VARIABLE), 1, LIST(TENSOR), 1, NULL, 1));
  REFUSED(
      tfd_strategy_update(S, 0, LIST(VARIABLE), 1, LIST(TENSOR), 1, ONE, -1));
  BAD(STRATEGY, tfd_strategy_gather(bad, 0, "x", LIST(TENSOR), 1, LIST(DEVICE),
                                    1, 0, OUT));
  REFUSED(tfd_strategy_gather(S, 0, NULL, LIST(TENSOR), 1, LIST(DEVICE), 1, 0,
                              OUT));
  REFUSED(tfd_strategy_gather(S, 0, "x", NULL, 1, LIST(DEVICE), 1, 0, OUT));
  REFUSED(tfd_strategy_gather(S, 0, "x", LIST(TENSOR), -1, LIST(DEVICE), 1, 0,
                              OUT));
  BAD_ENTRY(KINDS, tfd_strategy_gather(S, 0, "x", bad_list, 1, LIST(DEVICE), 1,
                                       0, OUT));
  REFUSED(tfd_strategy_gather(S, 0, "x", LIST(TENSOR), 1, NULL, 1, 0, OUT));
  REFUSED(tfd_strategy_gather(S, 0, "x", LIST(TENSOR), 1, LIST(DEVICE), -1, 0,
                              OUT));
  BAD_ENTRY(DEVICE, tfd_strategy_gather(S, 0, "x", LIST(TENSOR), 1, bad_list, 1,
                                        0, OUT));
  REFUSED(tfd_strategy_gather(S, 0, "x", LIST(TENSOR), 1, LIST(DEVICE), 1, 0,
                              NULL));
}

static void values_look_at_what_they_get(void **state) {
  (void)state;
  BAD(STRATEGY,
      tfd_value_new(bad, TFD_VALUE_PER_REPLICA, LIST(TENSOR), 1, OUT));
  REFUSED(tfd_value_new(S, (tfd_value_kind)99, LIST(TENSOR), 1, OUT));
  REFUSED(tfd_value_new(S, (tfd_value_kind)-1, LIST(TENSOR), 1, OUT));
  REFUSED(tfd_value_new(S, TFD_VALUE_PER_REPLICA, NULL, 1, OUT));
  REFUSED(tfd_value_new(S, TFD_VALUE_PER_REPLICA, LIST(TENSOR), -1, OUT));
  NO_ENTRY(tfd_value_new(S, TFD_VALUE_PER_REPLICA, bad_list, 1, OUT));
  REFUSED(tfd_value_new(S, TFD_VALUE_PER_REPLICA, LIST(TENSOR), 1, NULL));
  BAD_GIVES(VALUE, tfd_value_kind_of(bad), 0);
  BAD_GIVES(VALUE, tfd_value_count(bad), 0);
  BAD(VALUE, tfd_value_component(bad, 0, OUT));
  REFUSED(tfd_value_component(G(VALUE), 0, NULL));
  BAD_GIVES(VALUE, tfd_value_index(bad), -1);
  BAD(VALUE, tfd_value_strategy(bad, OUT));
  REFUSED(tfd_value_strategy(G(VALUE), NULL));
}

static void mirrored_look_at_what_they_get(void **state) {
  (void)state;
  BAD(STRATEGY,
      tfd_mirrored_new(bad, TFD_VARIABLE_PLAIN, LIST(VARIABLE), 1,
                       TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE, OUT));
  REFUSED(tfd_mirrored_new(S, (tfd_variable_kind)99, LIST(VARIABLE), 1,
                           TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE,
                           OUT));
  REFUSED(tfd_mirrored_new(S, (tfd_variable_kind)-1, LIST(VARIABLE), 1,
                           TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE,
                           OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, NULL, 1,
                           TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE,
                           OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, LIST(VARIABLE), -1,
                           TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE,
                           OUT));
  BAD_ENTRY(VARIABLE, tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, bad_list, 1,
                                       TFD_SYNCHRONIZATION_AUTO,
                                       TFD_AGGREGATION_NONE, OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, LIST(VARIABLE), 1,
                           (tfd_variable_synchronization)99,
                           TFD_AGGREGATION_NONE, OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, LIST(VARIABLE), 1,
                           (tfd_variable_synchronization)-1,
                           TFD_AGGREGATION_NONE, OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, LIST(VARIABLE), 1,
                           TFD_SYNCHRONIZATION_AUTO,
                           (tfd_variable_aggregation)99, OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, LIST(VARIABLE), 1,
                           TFD_SYNCHRONIZATION_AUTO,
                           (tfd_variable_aggregation)-1, OUT));
  REFUSED(tfd_mirrored_new(S, TFD_VARIABLE_PLAIN, LIST(VARIABLE), 1,
                           TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE,
                           NULL));
  BAD_GIVES(MIRRORED, tfd_mirrored_kind_of(bad), 0);
  BAD_GIVES(MIRRORED, tfd_mirrored_count(bad), 0);
  BAD(MIRRORED, tfd_mirrored_component(bad, 0, OUT));
  REFUSED(tfd_mirrored_component(G(MIRRORED), 0, NULL));
  BAD_GIVES(MIRRORED, tfd_mirrored_index(bad), -1);
  BAD(MIRRORED, tfd_mirrored_strategy(bad, OUT));
  REFUSED(tfd_mirrored_strategy(G(MIRRORED), NULL));
  BAD_GIVES(MIRRORED, tfd_mirrored_synchronization_of(bad), 0);
  BAD_GIVES(MIRRORED, tfd_mirrored_aggregation_of(bad), 0);
  BAD(MIRRORED, tfd_mirrored_read(bad, OUT));
  REFUSED(tfd_mirrored_read(G(MIRRORED), NULL));
}

static void runs_look_at_what_they_get(void **state) {
  (void)state;
  BAD(STRATEGY, tfd_run_begin(bad, OUT));
  REFUSED(tfd_run_begin(S, NULL));
  BAD(RUN, tfd_run_next(bad, OUT, OUT));
  REFUSED(tfd_run_next(G(RUN), NULL, OUT));
  REFUSED(tfd_run_next(G(RUN), OUT, NULL));
  BAD(RUN, tfd_run_stopped(bad, "x"));
  REFUSED(tfd_run_stopped(G(RUN), NULL));
  BAD(RUN, tfd_run_pass(bad, "x", OUT, OUT));
  REFUSED(tfd_run_pass(G(RUN), NULL, OUT, OUT));
  REFUSED(tfd_run_pass(G(RUN), "x", NULL, OUT));
  REFUSED(tfd_run_pass(G(RUN), "x", OUT, NULL));
  BAD(RUN, tfd_run_cancel(bad));
  BAD(RUN, tfd_run_diverge(bad, 0, "x", "x"));
  REFUSED(tfd_run_diverge(G(RUN), 0, NULL, "x"));
  REFUSED(tfd_run_diverge(G(RUN), 0, "x", NULL));
}

static void files_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_read_idx(NULL, OUT));
  REFUSED(tfd_read_idx("x", NULL));
  REFUSED(tfd_input_open(NULL, OUT));
  REFUSED(tfd_input_open("x", NULL));
  BAD_GIVES(INPUT, tfd_input_size(bad), -1);
  BAD(INPUT, tfd_input_part(bad, "x", 0, 0, false));
  REFUSED(tfd_input_part(G(INPUT), NULL, 0, 0, false));
  BAD(INPUT, tfd_input_read(bad, 1, OUT, OUT));
  REFUSED(tfd_input_read(G(INPUT), 1, NULL, OUT));
  REFUSED(tfd_input_read(G(INPUT), 1, OUT, NULL));
  BAD(INPUT, tfd_input_tensor(bad, TFD_BOOL, ONE, 1, false, OUT));
  REFUSED(tfd_input_tensor(G(INPUT), TFD_DTYPE_END, ONE, 1, false, OUT));
  REFUSED(tfd_input_tensor(G(INPUT), TFD_BOOL, NULL, 1, false, OUT));
  REFUSED(tfd_input_tensor(G(INPUT), TFD_BOOL, ONE, 1, false, NULL));
  BAD_GIVES(INPUT, tfd_input_crc(bad), -1);
  REFUSED(tfd_file_write(NULL, ONE, 1));
  REFUSED(tfd_file_write("x", NULL, 1));
  REFUSED(tfd_file_stat(NULL, OUT, OUT, OUT, OUT));
  REFUSED(tfd_file_stat("x", NULL, OUT, OUT, OUT));
  REFUSED(tfd_file_stat("x", OUT, NULL, OUT, OUT));
  REFUSED(tfd_file_stat("x", OUT, OUT, NULL, OUT));
  REFUSED(tfd_file_stat("x", OUT, OUT, OUT, NULL));
  REFUSED(tfd_folder_make(NULL));
  REFUSED(tfd_folder_list(NULL, OUT, OUT));
  REFUSED(tfd_folder_list("x", NULL, OUT));
  REFUSED(tfd_folder_list("x", OUT, NULL));
  REFUSED(tfd_files_match(NULL, OUT, OUT));
  REFUSED(tfd_files_match("x", NULL, OUT));
  REFUSED(tfd_files_match("x", OUT, NULL));
}

static void archives_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_archive_open(NULL, OUT));
  REFUSED(tfd_archive_open("x", NULL));
  BAD_GIVES(ARCHIVE, tfd_archive_count(bad), 0);
  BAD(ARCHIVE, tfd_archive_find(bad, "x", OUT));
  REFUSED(tfd_archive_find(G(ARCHIVE), NULL, OUT));
  REFUSED(tfd_archive_find(G(ARCHIVE), "x", NULL));
  BAD(ARCHIVE, tfd_archive_entry(bad, 0, OUT, OUT, OUT, OUT));
  REFUSED(tfd_archive_entry(G(ARCHIVE), 0, NULL, OUT, OUT, OUT));
  REFUSED(tfd_archive_entry(G(ARCHIVE), 0, OUT, NULL, OUT, OUT));
  REFUSED(tfd_archive_entry(G(ARCHIVE), 0, OUT, OUT, NULL, OUT));
  REFUSED(tfd_archive_entry(G(ARCHIVE), 0, OUT, OUT, OUT, NULL));
  BAD(ARCHIVE, tfd_archive_dim(bad, 0, 0, OUT));
  REFUSED(tfd_archive_dim(G(ARCHIVE), 0, 0, NULL));
  BAD_GIVES(ARCHIVE, tfd_archive_metadata(bad, "x"), NULL);
  REFUSED_GIVES(tfd_archive_metadata(G(ARCHIVE), NULL), NULL);
  BAD(ARCHIVE, tfd_archive_read(bad, 0, OUT));
  REFUSED(tfd_archive_read(G(ARCHIVE), 0, NULL));
  REFUSED(tfd_saver_new(NULL));
  BAD(SAVER, tfd_saver_add(bad, "x", G(TENSOR)));
  REFUSED(tfd_saver_add(G(SAVER), NULL, G(TENSOR)));
  BAD(TENSOR, tfd_saver_add(G(SAVER), "x", bad));
  BAD(SAVER, tfd_saver_metadata(bad, "x", "x"));
  REFUSED(tfd_saver_metadata(G(SAVER), NULL, "x"));
  REFUSED(tfd_saver_metadata(G(SAVER), "x", NULL));
  BAD(SAVER, tfd_saver_write(bad, "x"));
  REFUSED(tfd_saver_write(G(SAVER), NULL));
}

static void records_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_reader_open((tfd_reader_kind)99, "x", TFD_COMPRESSION_NONE, ONE,
                          1, OUT));
  REFUSED(tfd_reader_open((tfd_reader_kind)-1, "x", TFD_COMPRESSION_NONE, ONE,
                          1, OUT));
  REFUSED(tfd_reader_open(TFD_READER_RECORDS, NULL, TFD_COMPRESSION_NONE, ONE,
                          1, OUT));
  REFUSED(tfd_reader_open(TFD_READER_RECORDS, "x", (tfd_compression)99, ONE, 1,
                          OUT));
  REFUSED(tfd_reader_open(TFD_READER_RECORDS, "x", (tfd_compression)-1, ONE, 1,
                          OUT));
  REFUSED(tfd_reader_open(TFD_READER_RECORDS, "x", TFD_COMPRESSION_NONE, NULL,
                          1, OUT));
  REFUSED(tfd_reader_open(TFD_READER_RECORDS, "x", TFD_COMPRESSION_NONE, ONE,
                          -1, OUT));
  REFUSED(tfd_reader_open(TFD_READER_RECORDS, "x", TFD_COMPRESSION_NONE, ONE, 1,
                          NULL));
  BAD(READER, tfd_reader_next(bad, OUT, OUT));
  REFUSED(tfd_reader_next(G(READER), NULL, OUT));
  REFUSED(tfd_reader_next(G(READER), OUT, NULL));
  BAD(READER, tfd_reader_skip(bad, 0, OUT));
  REFUSED(tfd_reader_skip(G(READER), 0, NULL));
  REFUSED(tfd_writer_open(NULL, TFD_COMPRESSION_NONE, OUT));
  REFUSED(tfd_writer_open("x", (tfd_compression)99, OUT));
  REFUSED(tfd_writer_open("x", (tfd_compression)-1, OUT));
  REFUSED(tfd_writer_open("x", TFD_COMPRESSION_NONE, NULL));
  BAD(WRITER, tfd_writer_record(bad, ONE, 1));
  REFUSED(tfd_writer_record(G(WRITER), NULL, 1));
  BAD(WRITER, tfd_writer_flush(bad));
  BAD(WRITER, tfd_writer_close(bad));
}

static void examples_look_at_what_they_get(void **state) {
  (void)state;
  REFUSED(tfd_example_new(NULL));
  REFUSED(tfd_example_parse(NULL, 1, OUT));
  REFUSED(tfd_example_parse(ONE, 1, NULL));
  BAD_GIVES(EXAMPLE, tfd_example_count(bad), 0);
  BAD(EXAMPLE, tfd_example_find(bad, "x", OUT));
  REFUSED(tfd_example_find(G(EXAMPLE), NULL, OUT));
  REFUSED(tfd_example_find(G(EXAMPLE), "x", NULL));
  BAD(EXAMPLE, tfd_example_feature(bad, 0, OUT, OUT, OUT));
  REFUSED(tfd_example_feature(G(EXAMPLE), 0, NULL, OUT, OUT));
  REFUSED(tfd_example_feature(G(EXAMPLE), 0, OUT, NULL, OUT));
  REFUSED(tfd_example_feature(G(EXAMPLE), 0, OUT, OUT, NULL));
  BAD(EXAMPLE, tfd_example_tensor(bad, 0, OUT));
  REFUSED(tfd_example_tensor(G(EXAMPLE), 0, NULL));
  BAD(EXAMPLE, tfd_example_text(bad, 0, 0, OUT, OUT));
  REFUSED(tfd_example_text(G(EXAMPLE), 0, 0, NULL, OUT));
  REFUSED(tfd_example_text(G(EXAMPLE), 0, 0, OUT, NULL));
  BAD(EXAMPLE, tfd_example_add(bad, "x", TFD_FEATURE_NONE));
  REFUSED(tfd_example_add(G(EXAMPLE), NULL, TFD_FEATURE_NONE));
  REFUSED(tfd_example_add(G(EXAMPLE), "x", (tfd_feature_kind)99));
  REFUSED(tfd_example_add(G(EXAMPLE), "x", (tfd_feature_kind)-1));
  BAD(EXAMPLE, tfd_example_put_text(bad, ONE, 1));
  REFUSED(tfd_example_put_text(G(EXAMPLE), NULL, 1));
  BAD(EXAMPLE, tfd_example_put_tensor(bad, G(TENSOR)));
  BAD(TENSOR, tfd_example_put_tensor(G(EXAMPLE), bad));
  BAD(EXAMPLE, tfd_example_serialize(bad, OUT, OUT));
  REFUSED(tfd_example_serialize(G(EXAMPLE), NULL, OUT));
  REFUSED(tfd_example_serialize(G(EXAMPLE), OUT, NULL));
}

/* --- lives -----------------------------------------------------------------
 */

static void release_twice_is_an_error_not_a_crash(void **state) {
  tfd_object *o = (tfd_object *)never;
  int64_t before_n = tfd_live_handles(TFD_HANDLE_TENSOR);

  (void)state;
  before();
  assert_null(tfd_retain(NULL));
  tfd_release(NULL);
  assert_string_equal("before", tfd_error_message());
  assert_null(tfd_retain(o));
  check_refused("tfd_retain(", __LINE__);
  tfd_release(o);
  check_refused("tfd_release(", __LINE__);
  assert_int_equal(before_n, tfd_live_handles(TFD_HANDLE_TENSOR));
}

/* Headers of tensors are kept for the next ones, except where every use after
** release is to be seen by a sanitizer. */
static void released_tensors_are_told(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)state;
  skip();
#else
  const double x = 1.0;
  tfd_tensor *t = NULL;
  tfd_tensor *sum = NULL;
  tfd_object *in[2] = {G(TENSOR), NULL};
  int op = 0;
  int n = 0;

  (void)state;
  assert_int_equal(TFD_OK,
                   tfd_tensor_from_values(&x, 1, TFD_FLOAT32, NULL, 0, &t));
  assert_int_equal(TFD_OK, tfd_op_find("add", &op));
  in[1] = (tfd_object *)t;
  tfd_release((tfd_object *)t);
  assert_int_equal(0, tfd_tensor_rank(t));
  assert_string_equal("tfd_tensor_rank: tensor must be a tensor, got no open "
                      "handle (released before, or never one)",
                      tfd_error_message());
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd_tensor_wait(t));
  assert_int_equal(TFD_FAILED_PRECONDITION,
                   tfd_op_run(op, in, 2, NULL, 0, NULL, 0, &sum, 1, &n));
  tfd_release((tfd_object *)t);
  check_refused("tfd_release(", __LINE__);
#endif
}

/* --- handles of every kind --------------------------------------------------
 */

#define MAKE(KIND, call)            \
  do {                              \
    assert_int_equal(TFD_OK, call); \
    good[TFD_HANDLE_##KIND] = made; \
  } while (0)

static char path[64] = "/tmp/tfdist_given_XXXXXX";

static void make_files(void) {
  void *made = NULL;
  void *p = &made;
  int file = mkstemp(path);

  assert_true(file >= 0);
  close(file);
  MAKE(SAVER, tfd_saver_new(p));
  assert_int_equal(TFD_OK, tfd_saver_write(made, path));
  MAKE(ARCHIVE, tfd_archive_open(path, p));
  MAKE(WRITER, tfd_writer_open(path, TFD_COMPRESSION_NONE, p));
  MAKE(READER, tfd_reader_open(TFD_READER_RECORDS, path, TFD_COMPRESSION_NONE,
                               NULL, 0, p));
  MAKE(EXAMPLE, tfd_example_new(p));
}

static int make_all(void **state) {
  const double x = 1.0;
  const int64_t dims[1] = {1};
  void *made = NULL;
  void *p = &made;
  tfd_tensor *rows = NULL;

  (void)state;
  MAKE(DEVICE, tfd_device_at("CPU", 0, p));
  MAKE(CONTEXT, tfd_context_new(p));
  MAKE(TENSOR, tfd_tensor_from_values(&x, 1, TFD_FLOAT64, dims, 1, p));
  assert_int_equal(TFD_OK,
                   tfd_tensor_from_values(&x, 1, TFD_INT64, dims, 1, &rows));
  MAKE(SLICES, tfd_slices_new(G(TENSOR), rows, dims, 1, p));
  tfd_release((tfd_object *)rows);
  MAKE(VARIABLE, tfd_variable_new(G(TENSOR), NULL, true, NULL, p));
  MAKE(TAPE, tfd_tape_new(true, true, p));
  MAKE(WALK, tfd_walk_begin(G(TAPE), NULL, 0, NULL, 0, NULL, 0, false, p));
  MAKE(STRATEGY, tfd_strategy_new("mirrored", LIST(DEVICE), 1, NULL, p));
  MAKE(VALUE, tfd_value_new(S, TFD_VALUE_PER_REPLICA, LIST(TENSOR), 1, p));
  MAKE(MIRRORED,
       tfd_mirrored_new(S, TFD_VARIABLE_MIRRORED, LIST(VARIABLE), 1,
                        TFD_SYNCHRONIZATION_AUTO, TFD_AGGREGATION_NONE, p));
  MAKE(RUN, tfd_run_begin(S, p));
  make_files();
  return 0;
}

/* What was refused has not touched them. */
static int release_all(void **state) {
  int kind;

  (void)state;
  for (kind = TFD_HANDLE_KINDS - 1; kind >= 0; kind--)
    if (kind != TFD_HANDLE_DEVICE) tfd_release(good[kind]);
  unlink(path);
  for (kind = 0; kind < TFD_HANDLE_KINDS; kind++) {
    if (kind == TFD_HANDLE_DEVICE || kind == TFD_HANDLE_CONTEXT) continue;
    if (tfd_live_handles((tfd_handle_kind)kind) == 0) continue;
    print_error("kind %d: %lld handles left\n", kind,
                (long long)tfd_live_handles((tfd_handle_kind)kind));
    return -1;
  }
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_look_at_what_they_get),
      cmocka_unit_test(tensors_look_at_what_they_get),
      cmocka_unit_test(variables_look_at_what_they_get),
      cmocka_unit_test(operands_look_at_what_they_get),
      cmocka_unit_test(ops_look_at_what_they_get),
      cmocka_unit_test(tapes_look_at_what_they_get),
      cmocka_unit_test(walks_look_at_what_they_get),
      cmocka_unit_test(strategies_look_at_what_they_get),
      cmocka_unit_test(sums_and_updates_look_at_what_they_get),
      cmocka_unit_test(values_look_at_what_they_get),
      cmocka_unit_test(mirrored_look_at_what_they_get),
      cmocka_unit_test(runs_look_at_what_they_get),
      cmocka_unit_test(files_look_at_what_they_get),
      cmocka_unit_test(archives_look_at_what_they_get),
      cmocka_unit_test(records_look_at_what_they_get),
      cmocka_unit_test(examples_look_at_what_they_get),
      cmocka_unit_test(release_twice_is_an_error_not_a_crash),
      cmocka_unit_test(released_tensors_are_told),
  };

  alarm(900); /* a hang ends the program */
  return cmocka_run_group_tests(tests, make_all, release_all);
}
