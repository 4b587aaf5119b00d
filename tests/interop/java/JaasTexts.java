import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/** What Kafka makes of the value of sasl.jaas.config. */
final class JaasTexts {
    /** A line is a text in base64; the answer its modules, each a field: class, flag, options in base64; or "refused". */
    static void parse(Path texts, PrintStream out) throws Exception {
        Constructor<?> parser = Class.forName("org.apache.kafka.common.security.JaasConfig")
            .getConstructor(String.class, String.class);
        parser.setAccessible(true);
        for (String line : Files.readAllLines(texts)) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            List<String> fields = new ArrayList<>();
            try {
                Configuration parsed = (Configuration) parser.newInstance("x", text);
                for (AppConfigurationEntry entry : parsed.getAppConfigurationEntry("x")) {
                    List<String> parts = new ArrayList<>();
                    parts.add(encode(entry.getLoginModuleName()));
                    parts.add(entry.getControlFlag().toString().replaceAll(".*: ", ""));
                    for (Map.Entry<String, ?> option : new TreeMap<>(entry.getOptions()).entrySet()) {
                        parts.add(encode(option.getKey()) + "=" + encode((String) option.getValue()));
                    }
                    fields.add(String.join(" ", parts));
                }
            } catch (Exception error) { // also options without a name, which the map above cannot sort
                fields = List.of("refused");
            }
            out.println(String.join("\t", fields));
        }
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
