package bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** Threads that do one operation after the other. A worker that fails is counted and replaced; its operation is lost. */
final class Workers {
    private static final int FAILURES_MAX = 1000;

    interface Worker extends AutoCloseable {
        void perform() throws Exception;

        @Override
        default void close() throws Exception {}
    }

    interface Opener {
        Worker open(int number) throws Exception;
    }

    static Map<String, Object> run(int count, Options options, Opener opener) throws Exception {
        int operationsMax = options.number("operations-max", Integer.MAX_VALUE);
        AtomicBoolean isMeasured = new AtomicBoolean(), isOver = new AtomicBoolean();
        AtomicInteger done = new AtomicInteger();
        AtomicReference<Exception> fatal = new AtomicReference<>();
        Map<String, Integer> failures = new TreeMap<>();
        CountDownLatch opened = new CountDownLatch(count);
        List<Window.Latencies> latencies = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Window.Latencies own = new Window.Latencies();
            latencies.add(own);
            Thread thread = new Thread(() -> {
                try {
                    Worker worker = opened(opener, number, failures);
                    opened.countDown();
                    while (!isOver.get()) {
                        long began = System.nanoTime();
                        try {
                            worker.perform();
                            if (isMeasured.get()) {
                                own.add(System.nanoTime() - began);
                                done.incrementAndGet();
                            }
                        } catch (Exception failure) {
                            note(failures, failure);
                            worker.close();
                            worker = opener.open(number);
                        }
                    }
                    worker.close();
                } catch (Exception failure) {
                    fatal.compareAndSet(null, failure);
                    opened.countDown();
                }
            });
            thread.start();
            threads.add(thread);
        }
        opened.await();
        Thread.sleep((long) (options.seconds("warm-up") * 1000));
        isMeasured.set(true);
        Window window = new Window(options.brokerProcess());
        while (window.elapsedSeconds() < options.seconds("measured") && done.get() < operationsMax && fatal.get() == null) {
            Thread.sleep(20);
        }
        isMeasured.set(false);
        Map<String, Object> run = window.close(done.get());
        isOver.set(true);
        for (Thread thread : threads) thread.join(10_000);
        if (fatal.get() != null) throw fatal.get();
        if (done.get() == 0) throw new IllegalStateException("no operation ended in the measured time: " + failures);
        Window.latencies(run, latencies);
        run.put("errors", failures.values().stream().mapToInt(Integer::intValue).sum());
        if (!failures.isEmpty()) run.put("error_kinds", failures.toString());
        return run;
    }

    /**
     * A worker after its first operation, which loads classes and finds coordinators. On a busy machine a commit may fail
     * with INVALID_TXN_STATE, because the client lets EndTxn overtake its batches (docs/kafka.md).
     */
    private static Worker opened(Opener opener, int number, Map<String, Integer> failures) throws Exception {
        while (true) {
            Worker worker = opener.open(number);
            try {
                worker.perform();
                return worker;
            } catch (Exception failure) {
                note(failures, failure);
                worker.close();
            }
        }
    }

    private static synchronized void note(Map<String, Integer> failures, Exception failure) throws Exception {
        Throwable cause = failure;
        while (cause.getCause() != null) cause = cause.getCause();
        failures.merge(cause.getClass().getSimpleName(), 1, Integer::sum);
        if (failures.values().stream().mapToInt(Integer::intValue).sum() > FAILURES_MAX) throw failure;
    }

    private Workers() {}
}
