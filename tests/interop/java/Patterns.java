import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** Which texts RE2/J takes for regular expressions. */
final class Patterns {
    /** A line is a text in base64; the answer "taken" or "refused". */
    static void check(Path texts, PrintStream out) throws Exception {
        for (String line : Files.readAllLines(texts)) {
            String answer = "taken";
            try {
                Pattern.compile(new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8));
            } catch (PatternSyntaxException error) {
                answer = "refused";
            }
            out.println(answer);
        }
    }

    /** Names of groups of characters, as \p knows them, in one line. */
    static void groups(PrintStream out) throws Exception {
        TreeSet<String> names = new TreeSet<>(Set.of("Any"));
        for (String table : new String[] {"CATEGORIES", "SCRIPTS"}) {
            Field field = Class.forName("com.google.re2j.UnicodeTables").getDeclaredField(table);
            field.setAccessible(true);
            for (Object name : ((Map<?, ?>) field.get(null)).keySet()) names.add((String) name);
        }
        out.println(String.join("\t", names));
    }
}
