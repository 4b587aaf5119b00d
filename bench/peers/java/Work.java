/** One operation of one case, prepared: what bench/harness.py calls an Operation. */
interface Work {
    /** Does the work once. */
    void call() throws Exception;

    /** Text that is equal for all contenders exactly when they produced the same result. */
    String digest() throws Exception;

    /** Does the work {@code calls} times and returns the nanoseconds that took; what is not the work is not timed. */
    default long run(long calls) throws Exception {
        long begin = System.nanoTime();
        for (long i = 0; i < calls; i++) call();
        return System.nanoTime() - begin;
    }

    default void close() throws Exception { }
}
