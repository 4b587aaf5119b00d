import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;

/** Runs kafka-storage many times in one JVM. A line of the input is one run: its arguments, separated by tabs. */
public final class StorageRuns {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(stream);
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            String kind = "";
            int status = 1;
            try {
                status = kafka.tools.StorageTool.execute(line.split("\t", -1), stream);
            } catch (Throwable problem) {
                // Its main method prints the first two kinds as one line, others with a stack trace.
                kind = problem.getClass().getName();
                complained.write((problem.getMessage() + "\n").getBytes(StandardCharsets.UTF_8));
            }
            System.setOut(out);
            System.setErr(err);
            out.println(status + "\t" + text(said) + "\t" + text(complained) + "\t" + kind);
        }
    }

    private static String text(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
