import java.io.ByteArrayInputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.metadata.authorizer.StandardAuthorizerData;
import org.apache.kafka.server.authorizer.Action;

/** Who somebody is and what he may do, as Kafka decides it. */
final class Access {
    /**
     * Entries and questions, a line each; see tests/interop/test_access.py. The answer to a question is the line that
     * the authorizer logs.
     */
    static void authorize(Path file, PrintStream out) throws Exception {
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new LinkedHashMap<>();
        Method audit = null;
        Method find = null;
        StandardAuthorizerData data = null;
        for (String line : Files.readAllLines(file)) {
            String[] at = line.split("\t", -1);
            switch (at[0]) {
                case "authorizer":
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of("super.users", at[1], "allow.everyone.if.no.acl.found", at[2]));
                    acls = new LinkedHashMap<>();
                    break;
                case "acl":
                    acls.put(Uuid.randomUuid(), new StandardAcl(ResourceType.fromCode(Byte.parseByte(at[1])), at[2],
                        PatternType.fromCode(Byte.parseByte(at[3])), at[4], at[5],
                        AclOperation.fromCode(Byte.parseByte(at[6])), AclPermissionType.fromCode(Byte.parseByte(at[7]))));
                    break;
                case "loaded":
                    authorizer.loadSnapshot(acls);
                    authorizer.completeInitialLoad();
                    Field field = StandardAuthorizer.class.getDeclaredField("data");
                    field.setAccessible(true);
                    data = (StandardAuthorizerData) field.get(authorizer);
                    for (Method method : data.getClass().getDeclaredMethods()) {
                        if (method.getName().equals("buildAuditMessage")) {
                            audit = method;
                        } else if (method.getName().equals("findAclRule")) {
                            find = method;
                        }
                    }
                    audit.setAccessible(true);
                    find.setAccessible(true);
                    break;
                default:
                    String[] who = at[1].split(":", 2);
                    KafkaPrincipal principal = new KafkaPrincipal(who[0], who[1]);
                    RequestContext context = new RequestContext(new RequestHeader(ApiKeys.FETCH, (short) 12, "", 0), "",
                        InetAddress.getByName(at[2]), principal, ListenerName.normalised("C"),
                        SecurityProtocol.PLAINTEXT, ClientInformation.EMPTY, false);
                    Action action = new Action(AclOperation.fromCode(Byte.parseByte(at[3])), new ResourcePattern(
                        ResourceType.fromCode(Byte.parseByte(at[4])), at[5], PatternType.LITERAL), 1, true, true);
                    Object rule;
                    if (Set.of(at[6].split(";")).contains(at[1])) {
                        Class<?> kind = Class.forName(data.getClass().getName() + "$SuperUserRule");
                        Constructor<?> make = kind.getDeclaredConstructor();
                        make.setAccessible(true);
                        rule = make.newInstance();
                    } else {
                        rule = find.invoke(data, Set.of(principal, new KafkaPrincipal("User", "*")),
                            context.clientAddress().getHostAddress(), action);
                    }
                    out.println(data.authorize(context, action) + "\t"
                        + audit.invoke(data, principal, context, action, rule));
            }
        }
    }

    /** A line is ssl.principal.mapping.rules and a distinguished name, in base64. */
    static void names(Path file, PrintStream out) throws Exception {
        for (String line : Files.readAllLines(file)) {
            String[] at = line.split("\t", -1);
            String name;
            try {
                name = "=" + SslPrincipalMapper.fromRules(text(at[0])).getName(text(at[1]));
            } catch (IllegalArgumentException | IndexOutOfBoundsException | java.io.IOException error) {
                name = "-" + error.getClass().getSimpleName();
            }
            out.println(Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8)));
        }
    }

    /** A line is a certificate, in base64; the answer is the name of its subject. */
    static void subjects(Path file, PrintStream out) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String line : Files.readAllLines(file)) {
            byte[] der = Base64.getDecoder().decode(line);
            X509Certificate found = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der));
            String name = found.getSubjectX500Principal().getName();
            out.println(Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
