package bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** A stretch of time that is measured, and the line that tells it: the fields of {@code bench.results.Run}. */
final class Window {
    private static final double TICKS_PER_SECOND = 100;
    private final String broker;
    private final long beganNanos = System.nanoTime();
    private final double broker0, client0, machine0;

    Window(String broker) {
        this.broker = broker;
        broker0 = processSeconds(broker);
        client0 = processSeconds("self");
        machine0 = machineSeconds();
    }

    double elapsedSeconds() { return (System.nanoTime() - beganNanos) / 1e9; }

    /** Everything that was spent since; the figure is operations per second. */
    Map<String, Object> close(long operations) {
        double elapsed = elapsedSeconds();
        double brokerSpent = processSeconds(broker) - broker0, clientSpent = processSeconds("self") - client0;
        double othersSpent = Math.max(0, machineSeconds() - machine0 - brokerSpent - clientSpent);
        Map<String, Object> run = new LinkedHashMap<>();
        run.put("figure", operations / elapsed);
        run.put("operations", operations);
        run.put("elapsed_s", elapsed);
        if (operations > 0) {
            run.put("server_us", brokerSpent * 1e6 / operations);
            run.put("client_us", clientSpent * 1e6 / operations);
        }
        run.put("server_cores", brokerSpent / elapsed);
        run.put("client_cores", clientSpent / elapsed);
        run.put("other_cores", othersSpent / elapsed);
        run.put("server_mib", residentKib(broker) / 1024.0);
        return run;
    }

    static void latencies(Map<String, Object> run, Collection<Latencies> of) {
        int[] all = of.stream().flatMapToInt(Latencies::stream).sorted().toArray();
        if (all.length == 0) return;
        run.put("p50_ms", quantile(all, 0.5));
        run.put("p90_ms", quantile(all, 0.9));
        run.put("p99_ms", quantile(all, 0.99));
        run.put("p999_ms", quantile(all, 0.999));
        run.put("max_ms", all[all.length - 1] / 1000.0);
    }

    static void print(Map<String, Object> run) {
        List<String> fields = new ArrayList<>();
        run.forEach((name, value) -> fields.add('"' + name + "\": " + json(value)));
        System.out.println('{' + String.join(", ", fields) + '}');
    }

    private static String json(Object value) {
        if (value instanceof Double number) return String.format(Locale.ROOT, "%.4f", number);
        if (value instanceof Number) return value.toString();
        return '"' + value.toString().replace("\"", "'") + '"';
    }

    private static double quantile(int[] sortedMicros, double quantile) {
        return sortedMicros[(int) (sortedMicros.length * quantile)] / 1000.0;
    }

    private static double processSeconds(String process) {
        try {
            String stat = Files.readString(Path.of("/proc/" + process + "/stat"));
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / TICKS_PER_SECOND;
        } catch (IOException gone) {
            return 0;
        }
    }

    private static double machineSeconds() {
        try {
            String[] fields = Files.readAllLines(Path.of("/proc/stat")).get(0).trim().split("\\s+");
            long busy = 0;
            for (int field : new int[] {1, 2, 3, 6, 7}) busy += Long.parseLong(fields[field]);
            return busy / TICKS_PER_SECOND;
        } catch (IOException elsewhere) {
            return 0;
        }
    }

    private static long residentKib(String process) {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/" + process + "/status"))) {
                if (line.startsWith("VmRSS:")) return Long.parseLong(line.replaceAll("\\D", ""));
            }
        } catch (IOException gone) {
            return 0;
        }
        return 0;
    }

    /** How long operations of one thread took. */
    static final class Latencies {
        private int[] micros = new int[4096];
        private int count;

        void add(long nanos) {
            if (count == micros.length) micros = Arrays.copyOf(micros, count * 2);
            micros[count++] = (int) Math.min(Integer.MAX_VALUE, nanos / 1000);
        }

        int count() { return count; }

        private java.util.stream.IntStream stream() { return Arrays.stream(micros, 0, count); }
    }
}
