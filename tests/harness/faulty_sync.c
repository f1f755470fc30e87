/* Preloaded into a server under test: makes the disk slow or broken at the one call that durability rests on.
 *
 *   SYNC_FAILS_WHILE   a path: as long as it exists, every fsync and fdatasync fails with EIO
 *   SYNC_DELAY_US      microseconds that every fsync and fdatasync takes longer
 *
 * Build: cc -shared -fPIC -o faulty_sync.so faulty_sync.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_with(const char *name, int file) {
    const char *fails_while = getenv("SYNC_FAILS_WHILE");
    const char *delay_us = getenv("SYNC_DELAY_US");
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (delay_us) usleep((useconds_t)atoi(delay_us));
    if (fails_while && access(fails_while, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(file);
}

int fsync(int file) { return sync_with("fsync", file); }
int fdatasync(int file) { return sync_with("fdatasync", file); }
