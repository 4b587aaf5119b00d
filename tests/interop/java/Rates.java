import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SimpleRate;

/** What Kafka's rates of quotas come to. */
final class Rates {
    /**
     * A line is "begin KIND SAMPLES SECONDS", KIND Rate or SimpleRate; "record SIZE MS"; or "measure MS", to which the answer is a
     * number.
     */
    static void measure(Path script, PrintStream out) throws Exception {
        Rate rate = null;
        MetricConfig config = null;
        for (String line : Files.readAllLines(script)) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "begin" -> {
                    rate = words[1].equals("Rate") ? new Rate() : new SimpleRate();
                    config = new MetricConfig()
                        .samples(Integer.parseInt(words[2]))
                        .timeWindow(Long.parseLong(words[3]), TimeUnit.SECONDS);
                }
                case "record" -> rate.record(config, Double.parseDouble(words[1]), Long.parseLong(words[2]));
                case "measure" -> out.println(rate.measure(config, Long.parseLong(words[1])));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }
}
