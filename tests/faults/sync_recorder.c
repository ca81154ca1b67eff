/* Preloaded into a server: writes down, in their order, what it writes to files, creates and renames in folders, makes
 * durable, and answers. One line each: a letter, a blank, and a path (for answers the status):
 *   w written   s synced   n a name in the folder is new   a answered
 * SYNC_RECORD names the file of the lines; with SYNC_DROP=1 nothing is made durable, and nothing said of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int record = -1;
static int drop;

__attribute__((constructor)) static void begin(void) {
  const char* file = getenv("SYNC_RECORD");
  const char* without = getenv("SYNC_DROP");
  drop = without != NULL && without[0] == '1';
  if (file != NULL) record = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* One write(2) a line, so that threads do not mix theirs. */
static void say(char what, const char* text) {
  char line[4200];
  const int length = snprintf(line, sizeof line, "%c %s\n", what, text);
  if (record >= 0 && length > 0 && (size_t)length < sizeof line) {
    if (syscall(SYS_write, record, line, (size_t)length) != length) _exit(99);
  }
}

static void say_fd(char what, int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0 || path[0] != '/') return; /* a socket, a pipe */
  path[length] = 0;
  say(what, path);
}

static void say_folder_of(const char* path) {
  char folder[4096];
  if (path[0] != '/' || strlen(path) >= sizeof folder) return;
  strcpy(folder, path);
  char* slash = strrchr(folder, '/');
  *(slash == folder ? slash + 1 : slash) = 0;
  say('n', folder);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void* bytes, size_t size) {
  const ssize_t put = REAL(write)(fd, bytes, size);
  if (put > 0) say_fd('w', fd);
  return put;
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  const ssize_t put = REAL(pwrite)(fd, bytes, size, offset);
  if (put > 0) say_fd('w', fd);
  return put;
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  const ssize_t put = REAL(pwrite64)(fd, bytes, size, offset);
  if (put > 0) say_fd('w', fd);
  return put;
}
ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset) {
  const ssize_t put = REAL(pwritev)(fd, pieces, count, offset);
  if (put > 0) say_fd('w', fd);
  return put;
}
int fsync(int fd) {
  if (drop) return 0;
  const int done = REAL(fsync)(fd);
  if (done == 0) say_fd('s', fd);
  return done;
}
int fdatasync(int fd) {
  if (drop) return 0;
  const int done = REAL(fdatasync)(fd);
  if (done == 0) say_fd('s', fd);
  return done;
}
int rename(const char* from, const char* to) {
  const int done = REAL(rename)(from, to);
  if (done == 0) say_folder_of(to);
  return done;
}
int link(const char* from, const char* to) {
  const int done = REAL(link)(from, to);
  if (done == 0) say_folder_of(to);
  return done;
}
static int open_and_say(int (*real)(const char*, int, ...), const char* path, int flags, mode_t mode) {
  struct stat info;
  const int is_new = (flags & O_CREAT) != 0 && stat(path, &info) != 0;
  const int fd = real(path, flags, mode);
  if (fd >= 0 && is_new) say_folder_of(path);
  return fd;
}
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(more, int) : 0;
  va_end(more);
  return open_and_say(REAL(open), path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(more, int) : 0;
  va_end(more);
  return open_and_say(REAL(open64), path, flags, mode);
}
/* Said before it leaves: what is synced after it is too late. */
ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (message->msg_iovlen > 0 && message->msg_iov[0].iov_len > 12 &&
      memcmp(message->msg_iov[0].iov_base, "HTTP/1.1 ", 9) == 0) {
    char status[4] = {0};
    memcpy(status, (const char*)message->msg_iov[0].iov_base + 9, 3);
    say('a', status);
  }
  return REAL(sendmsg)(fd, message, flags);
}
