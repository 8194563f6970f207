"""Identifiers that the attacks plant, each with what a reader would still recognize of it: letters and digits alone."""

PLANTS = {
    "Anna Okafor": "annaokafor",
    "okafor.a": "okafora",
    "ZK4471190": "zk4471190",
    "44711903": "44711903",
    "DR-40117": "dr40117",
    "617-555-0143": "6175550143",
    "288-14-9031": "288149031",
    "j.thornbury@northmail.example": "thornbury",
    "http://hospital.example/x/anna-okafor": "okafor",
}
"""Those that no member, element or attribute may publish."""
