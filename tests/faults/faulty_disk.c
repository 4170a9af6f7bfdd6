/* Loaded before libc (LD_PRELOAD): makes one chosen call on files below a folder fail, or kills the
 * process there. Calls that count: open for writing, mkdir, write, writev, pwrite, sendfile,
 * copy_file_range, fsync, fdatasync, rename, renameat, renameat2, unlink, unlinkat, rmdir.
 *
 * faulty_arm(folder, at, kill) chooses the call, counted from 1; at = 0 only counts.
 * faulty_error(number) sets errno of the failing call; 0 restores ENOSPC for writes, EIO for others.
 * faulty_log() returns the calls so far, one letter each: o, w, f, r, u.
 * faulty_share(file) keeps all of that in a file, which processes started with FAULTY_CONTROL=file
 * share: they count together.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    char folder[4096];
    char calls[65536];
    int num_calls, chosen, kills, error;
};

static struct control own, *control = &own;

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

void faulty_share(const char *path) {
    int file = REAL(open)(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof own)) abort();
    control = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (control == MAP_FAILED) abort();
    close(file);
}

__attribute__((constructor)) static void share_with_parent(void) {
    if (getenv("FAULTY_CONTROL")) faulty_share(getenv("FAULTY_CONTROL"));
}

void faulty_arm(const char *path, int at, int kill_there) {
    strncpy(control->folder, path, sizeof control->folder - 1);
    memset(control->calls, 0, sizeof control->calls);
    control->num_calls = 0;
    control->chosen = at;
    control->kills = kill_there;
}

void faulty_error(int number) { control->error = number; }

const char *faulty_log(void) { return control->calls; }

static int is_below(const char *path) {
    return control->folder[0] && strncmp(path, control->folder, strlen(control->folder)) == 0;
}

static int is_file_below(int descriptor) {
    char link[64], path[4096];
    if (!control->folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* An entry may be named relative to an open folder. */
static int is_entry_below(int descriptor, const char *path) {
    return path[0] == '/' ? is_below(path) : is_file_below(descriptor);
}

/* Counts a call; says whether it is the one to fail. */
static int fails(char kind) {
    int number = __atomic_add_fetch(&control->num_calls, 1, __ATOMIC_SEQ_CST);
    if (number < (int)sizeof control->calls) control->calls[number - 1] = kind;
    if (number != control->chosen) return 0;
    if (control->kills) kill(getpid(), SIGKILL);
    errno = control->error ? control->error : kind == 'w' ? ENOSPC : EIO;
    return 1;
}

#define IS_WRITING(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT))

/* The mode is an argument of calls that create a file. */
#define OPEN(name, is_ours, parameters, ...)                                   \
    int name(parameters const char *path, int flags, ...) {                    \
        va_list more;                                                          \
        va_start(more, flags);                                                 \
        mode_t mode = va_arg(more, mode_t);                                    \
        va_end(more);                                                          \
        if (IS_WRITING(flags) && is_ours && fails('o')) return -1;             \
        return REAL(name)(__VA_ARGS__, flags, mode);                           \
    }
#define COMMA ,

OPEN(open, is_below(path), , path)
OPEN(open64, is_below(path), , path)
OPEN(openat, is_entry_below(folder, path), int folder COMMA, folder, path)
OPEN(openat64, is_entry_below(folder, path), int folder COMMA, folder, path)

static int is_new_below(const char *path) {
    struct stat found;
    return is_below(path) && stat(path, &found);
}

#define WRAP(kind, is_ours, type, name, parameters, arguments) \
    type name parameters { return is_ours && fails(kind) ? -1 : REAL(name) arguments; }

WRAP('o', is_new_below(path), int, mkdir, (const char *path, mode_t mode), (path, mode))
WRAP('w', is_file_below(to), ssize_t, write, (int to, const void *data, size_t size),
     (to, data, size))
WRAP('w', is_file_below(to), ssize_t, writev, (int to, const struct iovec *parts, int count),
     (to, parts, count))
WRAP('w', is_file_below(to), ssize_t, pwrite64,
     (int to, const void *data, size_t size, off_t offset), (to, data, size, offset))
WRAP('w', is_file_below(to), ssize_t, sendfile64,
     (int to, int source, off_t *offset, size_t size), (to, source, offset, size))
WRAP('w', is_file_below(to), ssize_t, copy_file_range,
     (int source, off64_t *start, int to, off64_t *place, size_t size, unsigned flags),
     (source, start, to, place, size, flags))
WRAP('f', is_file_below(file), int, fsync, (int file), (file))
WRAP('f', is_file_below(file), int, fdatasync, (int file), (file))
WRAP('r', is_below(old), int, rename, (const char *old, const char *new), (old, new))
WRAP('r', is_below(old), int, renameat, (int from, const char *old, int to, const char *new),
     (from, old, to, new))
WRAP('r', is_below(old), int, renameat2,
     (int from, const char *old, int to, const char *new, unsigned flags),
     (from, old, to, new, flags))
WRAP('u', is_entry_below(folder, path), int, unlinkat, (int folder, const char *path, int flags),
     (folder, path, flags))
WRAP('u', is_below(path), int, unlink, (const char *path), (path))
WRAP('u', is_below(path), int, rmdir, (const char *path), (path))
