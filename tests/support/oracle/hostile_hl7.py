# ruff: noqa: E501 - a segment is one line
"""Hostile HL7 v2 messages, written by hand as an interface engineer meets them.

``«patient.mrn»`` is an identifier in the structure of the message: a typed field, a labelled value, a component.
``‹1.name›`` is one in narrative, of a person whom nothing else in the message names.
"""

_MSH = "MSH|^~\\&|LAB|GEN|EHR|GEN|20240224134009||{}|M77|P|2.5.1||||||UNICODE UTF-8\n"
_PID = (
    "PID|1||«patient.mrn»^^^GEN^MR||«patient.family»^«patient.given»||«patient.dob»|F|||"
    "«patient.street»^^«patient.city»^MN^«patient.zip»||«patient.phone»^PRN^PH^«patient.email»\n"
)
_HEAD = _MSH + _PID

HL7_TEMPLATES: tuple[str, ...] = (
    # admission with every relative, insurance and guarantor
    _MSH.format("ADT^A01")
    + "PID|1|«patient.account»|«patient.mrn»^^^GEN^MR~«patient.ssn»^^^USA^SS||«patient.family»^«patient.given»|"
    "«mother.family»^«mother.given»|«patient.dob»|F|«spouse.family»^«patient.given»||«patient.street»^^«patient.city»^MN^"
    "«patient.zip»||«patient.phone»|||||«patient.account»|«patient.ssn»||«mother.mrn»\n"
    "NK1|1|«spouse.family»^«spouse.given»|SPO|«spouse.street»^^«spouse.city»^MN|«spouse.phone»\n"
    "GT1|1||«spouse.family»^«spouse.given»||«spouse.street»^^«spouse.city»|«spouse.phone»||«spouse.dob»|M||SPO|«spouse.ssn»\n"
    "PV2|||^Fell at home, found by neighbor ‹1.name›\n",
    # the telephone field with everything in the wrong component
    _MSH.format("ADT^A08")
    + "PID|1||«patient.mrn»^^^GEN^MR||«patient.family»^«patient.given»||«patient.dob»|M|||«patient.street»^^«patient.city»"
    "||^PRN^«spouse.given» «spouse.family»^«patient.email»^^^«patient.phone»~^^^«spouse.email»\n"
    "PD1||||«doctor.mrn»^«doctor.family»^«doctor.given»\n"
    "NTE|1||Do not call at work. Ask for his sister ‹1.name› on ‹1.phone›.\n"
    "NTE|2||E-mail: ‹2.email›\n",
    # results with identifiers under coded labels
    _HEAD.format("ORU^R01")
    + "OBR|1|A1|B1|34117-2^History^LN|||20240224|||||||||«doctor.mrn»^«doctor.family»^«doctor.given»\n"
    "OBX|1|NM|76435-7^SSN^LN||«patient.ssn»||||||F\n"
    "OBX|2|ST|45392-8^First name^LN||«spouse.given»||||||F\n"
    "OBX|3|ST|45394-4^Last name^LN||«spouse.family»||||||F\n"
    "OBX|4|ST|42077-8^Patient phone number^LN||«spouse.phone»||||||F\n"
    "OBX|5|CE|MRN^Chart number^L||C1^«mother.mrn»^L||||||F\n"
    "OBX|6|TX|8251-1^Comment^LN||Results phoned to Dr. ‹1.name› by ‹2.name›, RN.||||||F\n",
    # local codes whose display texts are people
    _HEAD.format("ORU^R01")
    + "AL1|1|DA|A1^Per mother «mother.given» «mother.family»^L|SV|Reported by «mother.given» «mother.family»\n"
    "DG1|1||X9^Follow up with Dr. «doctor.family»^99REF|Seen by Dr. «doctor.family»\n"
    "PV1|1|I|4W^401^A||||«doctor.mrn»^«doctor.family»^«doctor.given»\n"
    "NK1|1|«mother.family»^«mother.given»|MTH||«mother.phone»\n"
    "OBX|1|CWE|X1^Contact^L||C1^«mother.given» «mother.family» «mother.phone»^99CON||||||F\n"
    "OBX|2|CE|X2^Reader^L||^read by Dr. ‹1.name›^L||||||F\n",
    # a discharge letter in one OBX with line breaks
    _HEAD.format("MDM^T02") + "TXA|1|DS|TX|20240224||||||||D1||||«patient.family»_«patient.given»_«patient.mrn».pdf\n"
    "OBX|1|FT|18842-5^Discharge^LN||Dear Dr. ‹1.name›,\\.br\\thank you for referring Ms. «patient.family», born «patient.usdob»."
    "\\.br\\She lives with her son ‹2.name› at ‹2.street›, ‹2.city›.\\.br\\His phone is ‹2.phone›.\\.br\\"
    "Sincerely,\\.br\\‹3.name›, MD||||||F\n",
    # a wrapped letter, one line per segment
    _HEAD.format("ORU^R01") + "OBX|1|TX|11502-2^Report^LN||Patient: «patient.family», «patient.given»||||||F\n"
    "OBX|2|TX|11502-2^Report^LN||Record no. «patient.mrn»   DOB «patient.usdob»||||||F\n"
    "OBX|3|TX|11502-2^Report^LN||Requested by: Dr. ‹1.name›||||||F\n"
    "OBX|4|TX|11502-2^Report^LN||Accompanied by his wife, Mrs. ‹2.name›, who may be||||||F\n"
    "OBX|5|TX|11502-2^Report^LN||reached at ‹2.phone› or ‹2.email›.||||||F\n"
    "OBX|6|TX|11502-2^Report^LN||Electronically signed by ‹3.name›, M.D.||||||F\n",
    # Z-segments of a registration system
    _HEAD.format("ADT^A04") + "ZPD|1|«spouse.given» «spouse.family»|«spouse.phone»|«spouse.email»|«spouse.ssn»\n"
    "ZEM|1|Employer contact: ‹1.name›, phone ‹1.phone›\n"
    "NK1|1|«spouse.family»^«spouse.given»|SPO|«spouse.street»^^«spouse.city»|«spouse.phone»^PRN^PH^«spouse.email»||||||||||||||||||||||||||||||||«spouse.ssn»\n"
    "ZNT|1|spoke with daughter ‹2.name› about the ride home\n",
    # a booking with notes of the desk
    _HEAD.format("SIU^S12")
    + "SCH|A1^APT|||||CHK^Check^L|||30|min|^^30^202402261000|||||«doctor.mrn»^«doctor.family»^«doctor.given»|«doctor.phone»\n"
    "AIP|1||«doctor.mrn»^«doctor.family»^«doctor.given»\n"
    "AIG|1||«nurse.mrn»^«nurse.given» «nurse.family»\n"
    "NTE|1||Interpreter ‹1.name› booked, tel. ‹1.phone›\n"
    "NTE|2||Ride: call his brother ‹2.name›, ‹2.phone›\n",
    # a charge with people in odd fields
    _HEAD.format("DFT^P03")
    + "FT1|1|||20240224||CG|99213^Visit^C4||||1|||||||||«doctor.mrn»^«doctor.family»^«doctor.given»|"
    "«nurse.mrn»^«nurse.family»^«nurse.given»\n"
    "PR1|1|C4|12001^Suture^C4|Closed by Dr. «doctor.family», assisted by «nurse.given» «nurse.family»|20240224||||||"
    "«nurse.mrn»^«nurse.family»^«nurse.given»\n"
    "IN1|1|P1^PLAN|C1|ACME INS||||||||||||«spouse.family»^«spouse.given»|SPO|«spouse.dob»|«spouse.street»^^«spouse.city»\n"
    "NTE|1||Bill to Mr. ‹1.name›, ‹1.street›, ‹1.city›\n",
    # an immunization
    _HEAD.format("VXU^V04")
    + "ORC|RE|O1|F1|||||||«nurse.mrn»^«nurse.family»^«nurse.given»||«doctor.mrn»^«doctor.family»^«doctor.given»\n"
    "RXA|0|1|20240224||08^Hep B^CVX|1|mL||^given by «nurse.given» «nurse.family»|«nurse.mrn»^«nurse.family»^«nurse.given»\n"
    "NK1|1|«mother.family»^«mother.given»|MTH|«mother.street»^^«mother.city»|«mother.phone»\n"
    "OBX|1|CE|64994-7^Eligibility^LN||V1^consent: «mother.given» «mother.family»^L||||||F\n"
    "NTE|1||Consent by phone from father, Mr. ‹1.name› (‹1.phone›).\n",
    # a merge
    _MSH.format("ADT^A40") + "PID|1||«patient.mrn»^^^GEN^MR||«patient.family»^«patient.given»||«patient.dob»\n"
    "MRG|«spouse.mrn»^^^GEN^MR||«spouse.account»|||«spouse.account»|«spouse.family»^«spouse.given»\n"
    "NTE|1||Merged: «spouse.mrn» (old name «spouse.family») into «patient.mrn». Duplicate found by ‹1.name›, HIM.\n"
    "PV1|1|O|||||«doctor.mrn»^«doctor.family»^«doctor.given»||||||||||||«patient.account»\n",
    # emergency notes in repetitions and components
    _HEAD.format("ORU^R01")
    + "OBX|1|TX|8661-1^Chief complaint^LN||fall~called by «spouse.given» «spouse.family»~tel «spouse.phone»||||||F\n"
    "NK1|1|«spouse.family»^«spouse.given»|SPO||«spouse.phone»\n"
    "OBX|2|ST|X^EMS^L||Unit 4, medic ‹1.name›||||||F\n"
    "OBX|3|TX|X^Police^L||Officer ‹2.name› took the report.||||||F\n"
    "OBX|4|CWE|X^Referrer^L||D1^Dr. «doctor.given» «doctor.family»^L^«doctor.mrn»^«doctor.phone»^L||||||F\n"
    "PV1|1|E|||||«doctor.mrn»^«doctor.family»^«doctor.given»\n",
    # entities and markup in a text field
    _HEAD.format("ORU^R01")
    + "OBX|1|TX|8251-1^Comment^LN||<p>Patient <b>«patient.family»</b>, <i>«patient.given»</i>, MRN&nbsp;«patient.mrn»</p>"
    "||||||F\n"
    "OBX|2|TX|8251-1^Comment^LN||see https://emr.example.net/p?name=«patient.family»%2C«patient.given»||||||F\n"
    "OBX|3|TX|8251-1^Comment^LN||<p>Referred by Dr. ‹1.name›.<br/>Fax: ‹1.phone›</p>||||||F\n"
    "OBX|4|TX|8251-1^Comment^LN||DOB: «patient.isodob» SSN: «patient.ssn»||||||F\n",
    # the query answer with a demographic line as text
    _HEAD.format("RSP^K22") + "QAK|Q1|OK\n"
    "NTE|1||«patient.family»,«patient.given»/«patient.mrn»/«patient.usdob»/«patient.phone»\n"
    "NTE|2||PatientName:«patient.family»«patient.given»DOB:«patient.usdob»\n"
    "NTE|3||Next of kin: ‹1.name›, phone: ‹1.phone›, email: ‹1.email›\n"
    "NTE|4||Primary care: Dr. ‹2.name›, ‹2.street›, ‹2.city›\n",
    # an order with the copies in the wrong fields
    _HEAD.format("OML^O21") + "ORC|NW|O1||||||||||«doctor.mrn»^«doctor.family»^«doctor.given»||«doctor.phone»\n"
    "OBR|1|O1||24331-1^Panel^LN|||||||||Fasting. Pat. «patient.family» called from «patient.phone»|||"
    "«doctor.mrn»^«doctor.family»^«doctor.given»|«doctor.phone»|||||||||||«nurse.mrn»^«nurse.family»^«nurse.given»\n"
    "SPM|1|S1||BLD^Blood^L|||||||||drawn by «nurse.given» «nurse.family»\n"
    "NTE|1||Copy to Dr. ‹1.name›, fax ‹1.phone›.\n",
    # a problem list with free text
    _HEAD.format("PPR^PC1") + "PRB|AD|20240224|X1^Lives with «mother.given» «mother.family»^L|P1\n"
    "NK1|1|«mother.family»^«mother.given»|MTH|«mother.street»^^«mother.city»|«mother.phone»\n"
    "ROL|1|AD|PP|«doctor.mrn»^«doctor.family»^«doctor.given»\n"
    "NTE|1||Social worker ‹1.name› will visit. Landlord: Mr. ‹2.name›, ‹2.phone›.\n"
    "NTE|2||Pt's maiden name: ‹3.family›\n",
)
