import java.io.PrintStream;
import java.nio.file.Path;
import java.util.List;

/** Entry: the first argument names the work, the rest are its arguments. Results go to standard output. */
public class Interop {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        switch (args[0]) {
            case "authorize" -> Access.authorize(Path.of(args[1]), out);
            case "certificate-names" -> Access.names(Path.of(args[1]), out);
            case "certificate-subjects" -> Access.subjects(Path.of(args[1]), out);
            case "config-keys" -> ConfigKeys.print(out);
            case "check-configs" -> ConfigKeys.check(Path.of(args[1]), out);
            case "check-patterns" -> Patterns.check(Path.of(args[1]), out);
            case "pattern-groups" -> Patterns.groups(out);
            case "measure-rates" -> Rates.measure(Path.of(args[1]), out);
            case "parse-jaas" -> JaasTexts.parse(Path.of(args[1]), out);
            case "write-batches" -> Batches.write(Path.of(args[1]), Path.of(args[2]));
            case "read-batches" -> Batches.read(Path.of(args[1]), out);
            case "play-image" -> Images.play(Path.of(args[1]), out);
            case "images-of" -> {
                for (int i = 1; i < args.length; i += 2) Images.of(Path.of(args[i]), Long.parseLong(args[i + 1]), out);
            }
            case "describe-log" -> RaftLog.describe(Path.of(args[1]), Integer.parseInt(args[2]), out);
            case "fill-log" -> RaftLog.fill(
                Path.of(args[1]), Integer.parseInt(args[2]), Integer.parseInt(args[3]), Integer.parseInt(args[4]),
                Integer.parseInt(args[5]));
            case "serve-oauth" -> OAuth.serve(Path.of(args[1]), out);
            case "ask-oauth" -> OAuth.ask(args[1], List.of(args).subList(2, args.length), out);
            default -> throw new IllegalArgumentException("unknown work " + args[0]);
        }
        out.flush();
        System.exit(0); // the log's scheduler has threads of its own
    }
}
