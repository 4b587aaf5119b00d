import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one JVM, which saves a second each.
 * A line of standard input is a main class and its arguments, separated by tabs; the answer is a line with exit
 * status and the sizes of what went to standard output and error, then those bytes.
 */
public class ToolServer {
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    private static final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream err = new ByteArrayOutputStream();
    private static Exited first;
    private static int outSize;
    private static int errSize;

    /** The first one counts: some tools catch what their own exit throws here, print it, and exit again with 1. */
    private static void exit(int status, String message) {
        if (first == null) {
            first = new Exited(status);
            note();
        }
        throw first;
    }

    private static void note() {
        System.out.flush();
        System.err.flush();
        outSize = out.size();
        errSize = err.size();
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure(ToolServer::exit);
        Exit.setHaltProcedure(ToolServer::exit);
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t", -1);
            out.reset();
            err.reset();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            first = null;
            int status = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            if (first == null) {
                note();
            } else {
                status = first.status;
            }
            answers.printf("%d %d %d%n", status, outSize, errSize);
            answers.write(out.toByteArray(), 0, outSize);
            answers.write(err.toByteArray(), 0, errSize);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String name, String[] args) throws ReflectiveOperationException {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Exited exited) {
                return exited.status;
            }
            error.getCause().printStackTrace();
            return 1;
        }
    }
}
