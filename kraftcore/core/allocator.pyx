"""How the C library's allocator gives memory back."""

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__GLIBC__)
    #include <malloc.h>
    static int kraft_keep_freed(int bytes, int longest) {
        return mallopt(M_MMAP_THRESHOLD, longest) && mallopt(M_TRIM_THRESHOLD, bytes);
    }
    #else
    static int kraft_keep_freed(int bytes, int longest) { (void)bytes; (void)longest; return 0; }
    #endif
    """
    int kraft_keep_freed(int bytes, int longest) noexcept nogil

__all__ = ["keep_freed_memory"]

cdef enum:
    KEPT = 16 * 1024 * 1024
    LONGEST = 32 * 1024 * 1024  # glibc takes no more (malloc.c, HEAP_MAX_SIZE / 2)


def keep_freed_memory(int bytes_kept=KEPT):
    """Let this process keep up to so many bytes of freed memory at the end of its heap, for what it allocates next.

    A server allocates and frees a buffer of 0.1 to some MiB a request. By default glibc gives such memory back to the
    kernel at once and gets it again page by page, which took half of a broker's processor time under load.

    Args:
        bytes_kept: 0 to 2**31 - 1.

    Returns:
        Whether the C library can do this (glibc can, musl cannot). For the whole process, until it ends.
    """
    return bool(kraft_keep_freed(bytes_kept, LONGEST))
