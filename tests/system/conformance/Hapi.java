import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.support.DefaultProfileValidationSupport;
import ca.uhn.fhir.context.support.IValidationSupport;
import ca.uhn.fhir.parser.IParser;
import ca.uhn.fhir.rest.client.api.IGenericClient;
import ca.uhn.fhir.rest.client.api.ServerValidationModeEnum;
import ca.uhn.fhir.rest.client.interceptor.BearerTokenAuthInterceptor;
import ca.uhn.fhir.rest.server.exceptions.BaseServerResponseException;
import ca.uhn.fhir.validation.FhirValidator;
import ca.uhn.fhir.validation.SingleValidationMessage;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.hl7.fhir.common.hapi.validation.support.CommonCodeSystemsTerminologyService;
import org.hl7.fhir.common.hapi.validation.support.InMemoryTerminologyServerValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.PrePopulatedValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.SnapshotGeneratingValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.UnknownCodeSystemWarningValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.ValidationSupportChain;
import org.hl7.fhir.common.hapi.validation.validator.FhirInstanceValidator;
import org.hl7.fhir.instance.model.api.IBaseResource;
import org.hl7.fhir.r4.model.Bundle;
import org.hl7.fhir.r4.model.OperationOutcome;
import org.hl7.fhir.r4.model.Parameters;
import org.hl7.fhir.r4.model.StringType;

/**
 * The validator and the client of HAPI FHIR for tests; see tests/support/hapi.py.
 *
 * <p>{@code validate DEFINITIONS FOLDER} prints a line for each issue: file, severity, place, text, divided by tabs.
 * {@code client BASE BUNDLE} calls $de-identify and prints what it got.
 */
public class Hapi {
  private static final FhirContext R4 = FhirContext.forR4();

  public static void main(String[] words) throws Exception {
    if (words[0].equals("validate")) {
      validate(Path.of(words[1]), Path.of(words[2]));
    } else {
      call(words[1], Path.of(words[2]));
    }
  }

  private static void validate(Path definitions, Path folder) throws Exception {
    FhirValidator validator = R4.newValidator();
    validator.registerValidatorModule(new FhirInstanceValidator(support(definitions)));
    for (Path file : list(folder)) {
      for (SingleValidationMessage each : validator.validateWithResult(Files.readString(file)).getMessages()) {
        String text = each.getMessage().replaceAll("\\s+", " ");
        System.out.println(
            String.join("\t", file.getFileName().toString(), each.getSeverity().getCode(), each.getLocationString(), text));
      }
      System.out.println(file.getFileName() + "\tread");
    }
  }

  private static IValidationSupport support(Path definitions) throws Exception {
    PrePopulatedValidationSupport ours = new PrePopulatedValidationSupport(R4);
    for (Path file : list(definitions)) {
      IParser parser = file.toString().endsWith(".xml") ? R4.newXmlParser() : R4.newJsonParser();
      IBaseResource resource = parser.parseResource(Files.readString(file));
      ours.addResource(resource);
    }
    UnknownCodeSystemWarningValidationSupport unknown = new UnknownCodeSystemWarningValidationSupport(R4);
    unknown.setNonExistentCodeSystemSeverity(IValidationSupport.IssueSeverity.WARNING);
    return new ValidationSupportChain(
        new DefaultProfileValidationSupport(R4),
        ours,
        new CommonCodeSystemsTerminologyService(R4),
        new InMemoryTerminologyServerValidationSupport(R4),
        unknown,
        new SnapshotGeneratingValidationSupport(R4));
  }

  private static Path[] list(Path folder) throws Exception {
    try (Stream<Path> found = Files.list(folder)) {
      return found.sorted().toArray(Path[]::new);
    }
  }

  private static void call(String base, Path file) throws Exception {
    R4.getRestfulClientFactory().setServerValidationMode(ServerValidationModeEnum.ONCE);
    IGenericClient client = R4.newRestfulGenericClient(base);
    Bundle bundle = R4.newJsonParser().parseResource(Bundle.class, Files.readString(file));
    Parameters given = new Parameters();
    given.addParameter().setName("identifiableData").setResource(bundle);
    given.addParameter("policy", new StringType("HHS_SAFE_HARBOR_DETERMINISTIC_METHOD"));
    Parameters got = client.operation().onServer().named("$de-identify").withParameters(given).execute();
    System.out.println(R4.newJsonParser().encodeResourceToString(got));
    given.addParameter("policy", new StringType("none"));
    refused(() -> client.operation().onServer().named("$de-identify").withParameters(given).execute());
    IGenericClient other = R4.newRestfulGenericClient(base.replaceAll("/[^/]*$", "/elsewhere"));
    R4.getRestfulClientFactory().setServerValidationMode(ServerValidationModeEnum.NEVER);
    refused(() -> other.operation().onServer().named("$de-identify").withParameters(given).execute());
  }

  private static void refused(Runnable call) {
    try {
      call.run();
      System.out.println("no error");
    } catch (BaseServerResponseException fault) {
      OperationOutcome outcome = (OperationOutcome) fault.getOperationOutcome();
      String code = outcome == null ? "none" : outcome.getIssueFirstRep().getDetails().getCodingFirstRep().getCode();
      System.out.println(fault.getClass().getSimpleName() + " " + fault.getStatusCode() + " " + code);
    }
  }
}
