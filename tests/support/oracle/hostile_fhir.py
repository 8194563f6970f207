# ruff: noqa: E501 - a resource is one line
"""Hostile FHIR bundles and C-CDA documents, written by hand. See ``hostile_hl7`` for the notation."""

_PATIENT = (
    '{"resource":{"resourceType":"Patient","id":"p1","identifier":[{"system":"urn:oid:1.2.3.4","value":"«patient.mrn»"},'
    '{"system":"http://hl7.org/fhir/sid/us-ssn","value":"«patient.ssn»"}],"name":[{"family":"«patient.family»",'
    '"given":["«patient.given»"]}],"telecom":[{"system":"phone","value":"«patient.phone»"},{"system":"email",'
    '"value":"«patient.email»"}],"birthDate":"«patient.isodob»","address":[{"line":["«patient.street»"],'
    '"city":"«patient.city»","postalCode":"«patient.zip»"}]%s}}'
)


def _bundle(*resources: str, more: str = "") -> str:
    entries = ",".join([_PATIENT % more, *(f'{{"resource":{resource}}}' for resource in resources)])
    return f'{{"resourceType":"Bundle","type":"collection","entry":[{entries}]}}'


def _observation(rest: str) -> str:
    return f'{{"resourceType":"Observation","status":"final","subject":{{"reference":"Patient/p1"}},{rest}}}'


def _answers(*items: tuple[str, str]) -> str:
    written = ",".join(f'{{"linkId":"{n}","text":"{q}","answer":[{a}]}}' for n, (q, a) in enumerate(items))
    return f'{{"resourceType":"QuestionnaireResponse","status":"completed","item":[{written}]}}'


def _string(text: str) -> str:
    return f'{{"valueString":"{text}"}}'


_CODE = '"code":{"text":"Comment"}'
FHIR_TEMPLATES: tuple[str, ...] = (
    # a form with identifying questions
    _bundle(
        _answers(
            ("Maiden name", _string("«mother.family»")),
            ("Emergency contact", _string("«spouse.given» «spouse.family»")),
            ("Phone of contact", _string("«spouse.phone»")),
            ("ZIP code", _string("«spouse.zip»")),
            ("Social security number", _string("«spouse.ssn»")),
            ("E-mail", _string("«spouse.email»")),
            ("Street address", _string("«spouse.street»")),
            ("Anything else?", _string("My sister ‹1.name› will pick me up, call ‹1.phone›.")),
        )
    ),
    # relatives and clinicians as contained resources
    _bundle(
        '{"resourceType":"Encounter","status":"finished","class":{"code":"AMB"},"contained":[{"resourceType":'
        '"Practitioner","id":"c1","name":[{"text":"Dr. «doctor.given» «doctor.family»"}],"telecom":[{"system":"phone",'
        '"value":"«doctor.phone»"}]}],"participant":[{"individual":{"reference":"#c1","display":"«doctor.family»"}}],'
        '"reasonCode":[{"text":"Brought in by her husband, Mr. ‹1.name›"}]}',
        '{"resourceType":"RelatedPerson","patient":{"reference":"Patient/p1"},"name":[{"family":"«mother.family»",'
        '"given":["«mother.given»"]}],"telecom":[{"system":"phone","value":"«mother.phone»"}]}',
    ),
    # narrative that repeats the structure
    _bundle(
        _observation(
            _CODE + ',"text":{"status":"generated","div":"<div xmlns=\\"http://www.w3.org/1999/xhtml\\"><table><tr><td>'
            "«patient.family»</td><td>«patient.given»</td></tr><tr><td>MRN</td><td>«patient.mrn»</td></tr><tr><td>DOB</td>"
            '<td>«patient.usdob»</td></tr></table><p>Seen with Dr. ‹1.name›.</p></div>"},"valueString":"ok"'
        )
    ),
    # extensions that hold people
    _bundle(
        _observation(
            _CODE
            + ',"extension":[{"url":"http://example.org/caller","valueString":"«patient.given» «patient.family»"},'
            '{"url":"http://example.org/n","valueHumanName":{"family":"«spouse.family»","given":["«spouse.given»"]}},'
            '{"url":"http://example.org/t","valueContactPoint":{"system":"phone","value":"«spouse.phone»"}},'
            '{"url":"http://example.org/a","valueAddress":{"line":["«spouse.street»"],"city":"«spouse.city»"}},'
            '{"url":"http://example.org/r","valueMarkdown":"Reported to Dr. ‹1.name› on the ward"}],"valueString":"ok"'
        )
    ),
    # display texts
    _bundle(
        _observation(
            _CODE + ',"valueCodeableConcept":{"coding":[{"system":"urn:oid:2.16.840.1.113883.3.77","code":"x",'
            '"display":"«patient.given» «patient.family»"}],"text":"«patient.family» agreed"},"performer":[{"display":'
            '"Dr. «doctor.given» «doctor.family»"}],"note":[{"authorString":"«nurse.given» «nurse.family»","text":'
            '"Mother, Mrs. ‹1.name›, was informed by phone (‹1.phone›)."}]'
        )
    ),
    # a letter as an attachment and in the conclusion
    _bundle(
        '{"resourceType":"DiagnosticReport","status":"final","code":{"text":"CT"},"conclusion":"Patient «patient.family» '
        '(MRN «patient.mrn»), referred by Dr. ‹1.name›. Discussed with ‹2.name›, MD, at ‹2.phone›."}',
        '{"resourceType":"DocumentReference","status":"current","description":"Letter to Mr. ‹3.name›, ‹3.street›, '
        '‹3.city›","content":[{"attachment":{"contentType":"text/plain","title":"«patient.family»_«patient.given».txt",'
        '"url":"https://emr.example.net/doc/«patient.mrn»"}}]}',
    ),
    # messages between the portal and the practice
    _bundle(
        '{"resourceType":"Communication","status":"completed","payload":[{"contentString":"Hi, this is «patient.given» '
        "«patient.family», my number is now «patient.phone» and my e-mail «patient.email». Please tell Dr. ‹1.name› that my "
        'daughter ‹2.name› (‹2.phone›) will come along."}]}',
        '{"resourceType":"Appointment","status":"booked","description":"Call «patient.family» back","participant":'
        '[{"actor":{"display":"«doctor.given» «doctor.family»"},"status":"accepted"}],"comment":"Interpreter: Ms. ‹3.name›"}',
    ),
    # insurance
    _bundle(
        '{"resourceType":"Coverage","status":"active","subscriber":{"display":"«spouse.given» «spouse.family»"},'
        '"subscriberId":"«spouse.account»","beneficiary":{"reference":"Patient/p1"},"policyHolder":{"display":'
        '"«spouse.family», «spouse.given»"},"payor":[{"display":"Acme"}],"identifier":[{"value":"«spouse.mrn»"}]}',
        '{"resourceType":"Task","status":"draft","intent":"order","description":"Ask Mr. ‹1.name› of the insurer, phone '
        '‹1.phone›, about the claim","note":[{"text":"«patient.family» «patient.mrn»"}]}',
    ),
    # contacts, communication and links of the patient
    _bundle(
        _observation(_CODE + ',"valueString":"Neighbor ‹1.name› has the key, phone ‹1.phone›."'),
        more=',"contact":[{"name":{"family":"«spouse.family»","given":["«spouse.given»"]},"telecom":[{"value":'
        '"«spouse.phone»"}],"address":{"line":["«spouse.street»"],"city":"«spouse.city»"}}],"generalPractitioner":'
        '[{"display":"Dr. «doctor.given» «doctor.family»","identifier":{"value":"«doctor.mrn»"}}]',
    ),
    # numbers without labels of their own
    _bundle(
        _observation('"code":{"text":"Phone"},"valueString":"«spouse.phone»"'),
        _observation(
            '"code":{"coding":[{"system":"http://loinc.org","code":"76435-7"}],"text":"SSN"},"valueString":"«spouse.ssn»"'
        ),
        _observation('"code":{"text":"Medical record number"},"valueString":"«spouse.mrn»"'),
        _observation(
            _CODE
            + ',"component":[{"code":{"text":"Name of caregiver"},"valueString":"«mother.given» «mother.family»"}]'
        ),
        _observation(_CODE + ',"valueString":"Spoke to his wife ‹1.name› at ‹1.phone›."'),
    ),
)

_CDA = (
    '<?xml version="1.0"?><ClinicalDocument xmlns="urn:hl7-org:v3" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
    '<typeId root="2.16.840.1.113883.1.3" extension="POCD_HD000040"/><id root="2.16.840.1.113883.19.5"/><code '
    'code="34133-9" codeSystem="2.16.840.1.113883.6.1"/><title>Summary of «patient.given» «patient.family»</title>'
    '<effectiveTime value="20240224"/><recordTarget><patientRole><id root="2.16.840.1.113883.19.5.1" '
    'extension="«patient.mrn»"/><id root="2.16.840.1.113883.4.1" extension="«patient.ssn»"/><addr><streetAddressLine>'
    "«patient.street»</streetAddressLine><city>«patient.city»</city><postalCode>«patient.zip»</postalCode></addr>"
    '<telecom value="tel:«patient.phone»"/><patient><name><given>«patient.given»</given><family>«patient.family»</family>'
    '</name><birthTime value="«patient.dob»"/></patient></patientRole></recordTarget><author><time value="20240224"/>'
    '<assignedAuthor><id root="2.16.840.1.113883.4.6" extension="«doctor.mrn»"/><telecom value="tel:«doctor.phone»"/>'
    "<assignedPerson><name><given>«doctor.given»</given><family>«doctor.family»</family></name></assignedPerson>"
    "</assignedAuthor></author>%s<component><structuredBody>%s</structuredBody></component></ClinicalDocument>"
)
_GUARDIAN = (
    '<participant typeCode="IND"><associatedEntity classCode="NOK"><addr><streetAddressLine>«spouse.street»'
    '</streetAddressLine><city>«spouse.city»</city></addr><telecom value="tel:«spouse.phone»"/><associatedPerson><name>'
    "<given>«spouse.given»</given><family>«spouse.family»</family></name></associatedPerson></associatedEntity></participant>"
)


def _section(text: str, entry: str = "") -> str:
    code = '<code code="48767-8" codeSystem="2.16.840.1.113883.6.1"/>'
    return f"<component><section>{code}<title>Notes</title><text>{text}</text>{entry}</section></component>"


CDA_TEMPLATES: tuple[str, ...] = (
    _CDA
    % (
        _GUARDIAN,
        _section("<paragraph>«patient.family» lives with «spouse.given» «spouse.family».</paragraph>")
        + _section("<paragraph>Referred by Dr. ‹1.name›, phone ‹1.phone›.</paragraph>"),
    ),
    _CDA
    % (
        _GUARDIAN,
        _section(
            "<table><thead><tr><th>Name</th><th>Phone</th><th>MRN</th></tr></thead><tbody><tr><td>«spouse.given» "
            "«spouse.family»</td><td>«spouse.phone»</td><td>«patient.mrn»</td></tr></tbody></table>"
        )
        + _section("<list><item>Son: ‹1.name›</item><item>Lawyer: Mr. ‹2.name›, ‹2.phone›</item></list>"),
    ),
    _CDA
    % (
        "",
        _section(
            "<paragraph>Pt <content>«patient.family»</content>, DOB «patient.usdob», SSN «patient.ssn»<br/>MRN "
            "«patient.mrn»</paragraph><!-- exported for «patient.given» «patient.family» by «doctor.family» -->"
        )
        + _section("<paragraph>Signed: ‹1.name›, MD. Transcribed by ‹2.name›.</paragraph>"),
    ),
    _CDA
    % (
        _GUARDIAN,
        _section("ok", '<entry><observation classCode="OBS" moodCode="EVN"><code code="x" displayName="Called '
        '«spouse.given» «spouse.family»" codeSystem="2.16.840.1.113883.3.77"/><value xsi:type="ST">«spouse.phone» '
        "«patient.family»</value></observation></entry>")
        + _section("<paragraph>Home aide Ms. ‹1.name› reports falls. Her e-mail is ‹1.email›.</paragraph>"),
    ),
    _CDA
    % (
        "",
        _section("<![CDATA[«patient.given» «patient.family» <b>«patient.mrn»</b>]]>")
        + _section("<paragraph>Transferred from Dr. ‹1.name› at ‹1.city›; fax ‹1.phone›. Wife: ‹2.name›.</paragraph>"),
    ),
    _CDA
    % (
        _GUARDIAN,
        _section("<paragraph>«patient.family»&#39;s husband «spouse.given» agrees.</paragraph><footnote>«doctor.family» "
        "«doctor.phone»</footnote>")
        + _section("<paragraph>Home address of the caregiver: ‹1.name›, ‹1.street›, ‹1.city›</paragraph>"),
    ),
)  # fmt: skip
