package bench;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;

/** The command line, {@code --name=value}, and what every client is given. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments, int from) {
        for (int i = from; i < arguments.length; i++) {
            String[] parts = arguments[i].substring(2).split("=", 2);
            values.put(parts[0], parts[1]);
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) throw new IllegalArgumentException("--" + name + " is missing");
        return value;
    }

    int number(String name) { return Integer.parseInt(text(name)); }

    int number(String name, int otherwise) { return values.containsKey(name) ? number(name) : otherwise; }

    double seconds(String name) { return Double.parseDouble(text(name)); }

    boolean flag(String name) { return Boolean.parseBoolean(text(name)); }

    String bootstrap() { return text("bootstrap"); }

    String brokerProcess() { return text("server"); }

    byte[] value() {
        byte[] value = new byte[number("bytes")];
        new Random(7).nextBytes(value);
        return value;
    }

    /** Settings of a client: where the broker is, those given, and those that the profile sets ({@code --client=a=b;c=d}). */
    Properties client(Object... pairs) {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap());
        found.put("enable.metrics.push", "false");
        for (int i = 0; i < pairs.length; i += 2) found.put(pairs[i], String.valueOf(pairs[i + 1]));
        for (String pair : values.getOrDefault("client", "").split(";")) {
            if (pair.contains("=")) found.put(pair.split("=", 2)[0], pair.split("=", 2)[1]);
        }
        return found;
    }
}
