/* Files: idx, archives, records, examples. Part of tfdist.h. */
#ifndef TFDIST_H
#error "include tfdist.h, which is the whole API"
#endif
#ifndef TFDIST_FILES_H
#define TFDIST_FILES_H

/* --- Files -------------------------------------------------------------- */

/** Tensor from an idx file, plain or gzip (images and labels of the MNIST
 * family). Shapes: as the file says, rank <= 8.
 * Errors: NotFound; DataLoss naming file and offset. */
TFD_API int tfd_read_idx(const char *path, tfd_tensor **tensor_p);
/** Open a file to read it part by part; the first part is all of it.
 * Errors: NotFound, FailedPrecondition, ResourceExhausted. */
TFD_API int tfd_input_open(const char *path, tfd_input **input_p);
/** Bytes of the file, -1 for what is no plain file. */
TFD_API int64_t tfd_input_size(const tfd_input *input);
/** Go to these bytes of the file, plain or deflated (without head and tail);
 * `name` is what messages call them. Errors: DataLoss beyond the file's end. */
TFD_API int tfd_input_part(tfd_input *input, const char *name, int64_t offset,
                           int64_t bytes, bool deflated);
/** Up to `bytes` more bytes of the part, fewer only at its end; valid until the
 * next call. Errors: DataLoss; ResourceExhausted for more unpacked bytes than
 *   the file may have, as for tensors. */
TFD_API int tfd_input_read(tfd_input *input, int64_t bytes, const void **text_p,
                           size_t *text_bytes_p);
/** The rest of the part as a tensor on the current device.
 * Errors: DataLoss naming file and offset when it does not fill the shape. */
TFD_API int tfd_input_tensor(tfd_input *input, tfd_dtype dtype,
                             const int64_t *dims, int dims_n, bool big_endian,
                             tfd_tensor **tensor_p);
/** CRC-32 of the bytes that the part gave so far. */
TFD_API int64_t tfd_input_crc(const tfd_input *input);
/** Put a file in place with these contents: it appears whole or not at all.
 * Blocks: until it is on the disk. Errors: ResourceExhausted (no space),
 *   NotFound (no such folder), FailedPrecondition. */
TFD_API int tfd_file_write(const char *path, const void *data,
                           size_t data_bytes);
/** The text of a file that its owner alone may read or write, without the ends
 * of lines behind it; valid until the thread's next call.
 * Errors: NotFound; FailedPrecondition when others may; InvalidArgument for an
 *   empty file and one above 4096 bytes. */
TFD_API int tfd_secret_read(const char *path, const void **secret_p,
                            size_t *secret_bytes_p);
/** What `path` is, and when it was written last; neither file nor folder when
 * there is nothing. Units: microseconds since 1970, which a double holds. */
TFD_API int tfd_file_stat(const char *path, bool *is_file_p, bool *is_folder_p,
                          int64_t *bytes_p, int64_t *modified_p);
/** Make a folder and those above it that are missing. */
TFD_API int tfd_folder_make(const char *path);
/** Names in a folder in no order, each ended by a zero byte; valid until the
 * thread's next call. Errors: NotFound, FailedPrecondition. */
TFD_API int tfd_folder_list(const char *path, const void **names_p,
                            size_t *names_bytes_p);
/** Paths that match a pattern with * ? [sets] and backslashes before plain
 * characters, in no order, each ended by a zero byte; valid until the thread's
 * next call. Hidden names match a pattern that begins with a dot; folders that
 * may not be read hold nothing.
 * Errors: ResourceExhausted (no descriptors, no memory), FailedPrecondition. */
TFD_API int tfd_files_match(const char *pattern, const void **paths_p,
                            size_t *paths_bytes_p);
/** An image uint8 {height, width, 1 to 4 channels} as PNG; valid until the
 * thread's next call. Errors: InvalidArgument, ResourceExhausted.
 * Source: tf.io.encode_png */
TFD_API int tfd_png_encode(tfd_tensor *image, const void **png_p,
                           size_t *png_bytes_p);
/** Open a safetensors file; its header is read and checked, tensors are in the
 * order of their names.
 * Errors: NotFound; DataLoss naming file, tensor and offset.
 * Source: github.com/huggingface/safetensors, "Format" */
TFD_API int tfd_archive_open(const char *path, tfd_archive **archive_p);
/** Number of tensors. */
TFD_API int tfd_archive_count(const tfd_archive *archive);
/** Position of the tensor called `name`, -1 when there is none. */
TFD_API int tfd_archive_find(const tfd_archive *archive, const char *name,
                             int *position_p);
/** Name, dtype, offset in the file and size in bytes of tensor `index`.
 * Errors: IndexError. */
TFD_API int tfd_archive_entry(const tfd_archive *archive, int index,
                              const char **name_p, const char **dtype_p,
                              int64_t *offset_p, int64_t *bytes_p);
/** Size of axis `axis` of tensor `index`, -1 outside its rank. */
TFD_API int tfd_archive_dim(const tfd_archive *archive, int index, int axis,
                            int64_t *size_p);
/** Metadata by key, NULL when there is none. */
TFD_API const char *tfd_archive_metadata(const tfd_archive *archive,
                                         const char *key);
/** Read tensor `index`, on the current device, and check it against its
 * checksum if the file has one.
 * Errors: DataLoss; NotImplementedError for dtypes that there are not. */
TFD_API int tfd_archive_read(tfd_archive *archive, int index,
                             tfd_tensor **tensor_p);

/** Collects tensors for one safetensors file. */
TFD_API int tfd_saver_new(tfd_saver **saver_p);
/** Add a tensor. Errors: AlreadyExists for a name that is taken. */
TFD_API int tfd_saver_add(tfd_saver *saver, const char *name,
                          tfd_tensor *tensor);
/** Add an entry to the file's metadata; both texts are UTF-8. */
TFD_API int tfd_saver_metadata(tfd_saver *saver, const char *key,
                               const char *text);
/** Write the file with checksums of header and tensors. It appears under its
 * name when it is whole and on the disk; until then the old file stays.
 * Blocks: until tensors are computed and synced to the disk.
 * Errors: ResourceExhausted (no space), FailedPrecondition. */
TFD_API int tfd_saver_write(tfd_saver *saver, const char *path);

/** Read the records of a file in order, ahead of the caller by a thread.
 * `sizes`: for fixed records their size and those of header and footer. Units:
 *   bytes.
 * Errors: NotFound, FailedPrecondition; ValueError for bad sizes. */
TFD_API int tfd_reader_open(tfd_reader_kind kind, const char *path,
                            tfd_compression compression, const int64_t *sizes,
                            int sizes_n, tfd_reader **reader_p);
/** The next record, NULL at the end; valid until the next call.
 * Blocks: until it is read. Errors: DataLoss naming file, record and offset,
 *   every time from then on; Cancelled. */
TFD_API int tfd_reader_next(tfd_reader *reader, const void **record_p,
                            size_t *record_bytes_p);
/** Pass over up to n records; fewer only at the end. Blocks, Errors: as next.
 */
TFD_API int tfd_reader_skip(tfd_reader *reader, int64_t n, int64_t *skipped_p);

/** Write records (TFRecord) to a new file; an old one is emptied.
 * Errors: NotFound (no such folder), FailedPrecondition. */
TFD_API int tfd_writer_open(const char *path, tfd_compression compression,
                            tfd_writer **writer_p);
/** Add a record. Errors: FailedPrecondition when closed; ResourceExhausted. */
TFD_API int tfd_writer_record(tfd_writer *writer, const void *record,
                              size_t record_bytes);
/** Let other processes see what was written. */
TFD_API int tfd_writer_flush(tfd_writer *writer);
/** Complete the file; closing twice is nothing. */
TFD_API int tfd_writer_close(tfd_writer *writer);

/** An Example without features. Source: tf.train.Example */
TFD_API int tfd_example_new(tfd_example **example_p);
/** Read a serialized Example. Errors: DataLoss. */
TFD_API int tfd_example_parse(const void *data, size_t data_bytes,
                              tfd_example **example_p);
/** Number of features; they are sorted by name. */
TFD_API int tfd_example_count(const tfd_example *example);
/** Position of the feature called `name`, -1 when there is none. */
TFD_API int tfd_example_find(const tfd_example *example, const char *name,
                             int *position_p);
/** Name, kind and number of values of feature `index`. Errors: IndexError. */
TFD_API int tfd_example_feature(const tfd_example *example, int index,
                                const char **name_p, tfd_feature_kind *kind_p,
                                int64_t *values_p);
/** Values of a feature of numbers. Shapes: [n], float32 or int64.
 * Errors: InvalidArgument for another kind. */
TFD_API int tfd_example_tensor(tfd_example *example, int index,
                               tfd_tensor **tensor_p);
/** Text `value` of feature `index`. Errors: IndexError. */
TFD_API int tfd_example_text(const tfd_example *example, int index,
                             int64_t value, const void **text_p,
                             size_t *text_bytes_p);
/** Begin a feature; what is put next are its values. */
TFD_API int tfd_example_add(tfd_example *example, const char *name,
                            tfd_feature_kind kind);
TFD_API int tfd_example_put_text(tfd_example *example, const void *text,
                                 size_t text_bytes);
/** Elements of a float32 or int64 tensor. */
TFD_API int tfd_example_put_tensor(tfd_example *example, tfd_tensor *tensor);
/** The Example as bytes, features sorted by name; valid until it changes. */
TFD_API int tfd_example_serialize(tfd_example *example, const void **data_p,
                                  size_t *data_bytes_p);

#endif
