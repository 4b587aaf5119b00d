/*
 * CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) for callers that hold no GIL.
 *
 * The crc32c package has no C interface; inside compiled loops its Python call would cost more than the checksum of
 * a small batch. On x86-64 with SSE4.2 and PCLMULQDQ this file uses the crc32 instruction on three interleaved
 * streams: one instruction has a latency of three cycles and a throughput of one, so three streams fill the unit. The
 * partial results are joined by a carry-less multiplication with x^(8n-33) mod P, n being the bytes that follow.
 * Everywhere else crc32c_kernel_usable() is 0 and crc32c.pyx asks the package.
 */
#ifndef KRAFTCORE_CRC32C_KERNEL_H
#define KRAFTCORE_CRC32C_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KRAFTCORE_CRC32C_X86 1
#include <immintrin.h>

/* Stream lengths, and for each x^(8n-33) mod P and x^(16n-33) mod P, bit-reflected; crc32c.pyx checks them at import. */
#define CRC32C_LONG 2048
#define CRC32C_LONG_1 0xA51B6135u
#define CRC32C_LONG_2 0x82F89C77u
#define CRC32C_MIDDLE 256
#define CRC32C_MIDDLE_1 0xB9E02B86u
#define CRC32C_MIDDLE_2 0xDD7E3B0Cu
#define CRC32C_SHORT 48
#define CRC32C_SHORT_1 0xDDC0152Bu
#define CRC32C_SHORT_2 0x0715CE53u

static inline uint64_t crc32c_load(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t crc32c_shift(uint64_t crc, uint32_t power) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi32_si128((int)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t crc32c_three(
    uint64_t crc, const uint8_t *p, size_t n, uint32_t power1, uint32_t power2) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < n; i += 8) {
        crc = _mm_crc32_u64(crc, crc32c_load(p + i));
        second = _mm_crc32_u64(second, crc32c_load(p + n + i));
        third = _mm_crc32_u64(third, crc32c_load(p + 2 * n + i));
    }
    return crc32c_shift(crc, power2) ^ crc32c_shift(second, power1) ^ third;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_kernel_update(uint32_t value, const uint8_t *p, size_t n) {
    uint64_t crc = (uint32_t)~value;
    while (n >= 3 * CRC32C_LONG) {
        crc = crc32c_three(crc, p, CRC32C_LONG, CRC32C_LONG_1, CRC32C_LONG_2);
        p += 3 * CRC32C_LONG;
        n -= 3 * CRC32C_LONG;
    }
    while (n >= 3 * CRC32C_MIDDLE) {
        crc = crc32c_three(crc, p, CRC32C_MIDDLE, CRC32C_MIDDLE_1, CRC32C_MIDDLE_2);
        p += 3 * CRC32C_MIDDLE;
        n -= 3 * CRC32C_MIDDLE;
    }
    while (n >= 3 * CRC32C_SHORT) {
        crc = crc32c_three(crc, p, CRC32C_SHORT, CRC32C_SHORT_1, CRC32C_SHORT_2);
        p += 3 * CRC32C_SHORT;
        n -= 3 * CRC32C_SHORT;
    }
    for (; n >= 8; p += 8, n -= 8) crc = _mm_crc32_u64(crc, crc32c_load(p));
    for (; n; p++, n--) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}

/* Two tests of a word that libgcc's start-up code has filled: cheap enough for every call. */
static inline int crc32c_kernel_usable(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

#else

static inline int crc32c_kernel_usable(void) { return 0; }
static inline uint32_t crc32c_kernel_update(uint32_t value, const uint8_t *p, size_t n) {
    (void)value; (void)p; (void)n;
    return 0;
}

#endif
#endif
