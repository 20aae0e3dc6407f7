"""The formats that texts of custom resources may be asked for: which texts kube-apiserver 1.36 takes."""

from __future__ import annotations

import pytest

from haru.kube.custom.formats import FORMATS, check_of

TAKEN_AND_REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "cidr": (
        ["1.2.3.4/032", "1.2.3.4/000000032", "10.0.0.0/8", "10.0.0.1/8", "010.0.0.0/08", "::/0", "::ffff:1.2.3.4/96",
         "::ffff:1.2.3.4/120"],
        ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "fd00::1/129", "fe80::1%eth0/64", "10.0.0.0/", "/8",
         "10.0.0.0/8/8", " 10.0.0.0/8", "10.0.0.0/255.0.0.0", "10.0.0.256/8", "10.0.0/8", ""],
    ),
    "ipv4": (
        ["1.2.3.4", "01.2.3.4", "001.002.003.004", "::ffff:1.2.3.4", "1.2.3.04", "1.2.3.0004"],
        ["1.2.3", "1.2.3.4.5", "::1", "256.1.1.1", "1.2.3.4 ", "1.2.3.4/8", "0x1.2.3.4", ""],
    ),
    "ipv6": (
        ["::1", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "ABCD::", "::", "1:2:3:4:5:6:1.2.3.4"],
        ["1.2.3.4", "::ffff:01.2.3.4", "fe80::1%eth0", "1::2::3", "1:2:3:4:5:6:7", "12345::", "::1 ", "[::1]",
         "1::2:3:4:5:6:7:8", ""],
    ),
    "duration": (
        ["2562048h", "0.99999999999999999999h", "-9223372036854775808ns", "1 nanobot", "1 w", "1week", "1hr", "1h",
         "22 ns", "5 days", "3 weeks 2 min", "1.5h", "-1h", "0", "foo 3 days bar", "1h30m", "1 hour", "1 hours",
         "1 hourly", "5 seconds", "1µs", "1μs", "1us", "+5s", ".5s", "5.s", "9223372036854775807 ns", "1h 30x",
         "x1h", "3 s.", "1.5 hours", "1M", "1H", "1 D", "1e3s", "--1s", "1h1", "1h-1m"],
        ["9223372036854775808ns", "5wks", "1hrs", "٣ h", "1x", "", "h", "1", ".s", "9999999999999999999h",
         "99999999999999999999 ns", "1.x s", "1 month"],
    ),
    "date": (
        ["2026-01-02", "0000-01-01", "2024-02-29"],
        ["20260102", "2026-W01-1", "2026-1-2", "2026-02-30", "2023-02-29", "2026-01-02 ", "2026-01-02T00:00:00Z",
         "10000-01-01", "2026-00-01", "٢٠٢٦-01-02", ""],
    ),
    "date-time": (
        ["2026-01-02T03:04:05Z", "2026-01-02t03:04:05z", "2026-01-02T03:04:05.123Z", "2026-01-02T03:04:05,123Z",
         "2026-01-02T03:04:05x123Z", "2026-01-02T03:04:05+01:00", "2026-01-02T03:04:05+99:99",
         "2026-01-02T03:04:05ZTx"],
        ["2026-01-02 03:04:05Z", "2026-01-02T03:04:05", "2026-01-02T24:04:05Z", "2026-01-02T03:60:05Z",
         "2026-01-02T03:04:60Z", "2026-01-02T03:04:05+0100", "2026-02-30T03:04:05Z", "2026-01-02T03:04:05.Z",
         "2026-01-02T3:04:05Z", "", "2026-01-02T", "2026-01-02T03:04:05+01"],
    ),
    "email": (
        ["a@b (x) (y)", "Bob (x) <a@b>", "Bob <a@b> (x)", '"B" "C" <a@b>', "a b.c <a@b>", "a@[::1]", "Bob < a@b>",
         "g: Bob <a@b> (x);", "g h: a@b (x) ; (y)", "a (x(y)) <a@b>", "a@b (x(y(z(w(v)))))", ' "a"@b', "a(b)c <x@y>",
         "a@b.c", "a@b", "Bob <a@b.c>", '"Bob B" <a@b.c>', "<a@b.c>", '"a b"@c', "a@[1.2.3.4]", "a@-b", "ä@b.c",
         "a@ä.c", " a@b.c ", "a@b.c (x)", "=?utf-8?q?B=C3=B6b?= <a@b.c>", "a+b@c.d", "group: a@b.c;", "\"a\\\"b\"@c",
         "a@b_c", "B.ob <a@b.c>"],
        ["a@[x]", "Bob <a@b >", "g: a@b, c@d;", "a@b\\", "(", "a", "a@b.c, c@d.e", "a b@c", "a@", "@b", "a..b@c",
         ".a@b", "a.@b", "a@b..c", "a@b.", "(x) a@b.c", "Bob a@b.c", "a@b c", "group:;", "a\\@b@c", "a@b<c>",
         "<a@b.c", "a@b.c>", "Bob <a@b.c> x", '""@b', "a\t@b", "a@b:c", "Bob, X <a@b.c>", ""],
    ),
    "hostname": (
        ["ª.com", "1a.bc", "a", "a.b.co", "a-", "a-b", "1", "A.COM", "ä.de", "☃.com", "x" * 63, "a-b.cd", "a+b",
         "a$b.com", "x--y.com", "xn--a.com"],
        ["²", "Ⅷ", "a.²b", "ab-.com", "a" * 64, "a.c-om", "a.b", "a.b.c1", "a_b", "-a", "a--b", "1.2", "1.2.3.4",
         "a.", ".a", "a..bc", "a.☃", "x" * 64, "x" * 64 + ".com", "a." + "b" * 64, ("x" * 60 + ".") * 5 + "com",
         "a.b-c", "a.b.c-d", "a b", "", "a.bcd.", "-a.com", "a-.com"],
    ),
    "uri": (
        ["x://a:80:90", "http://[::1%25%41]/", "http://%C3%A9/", "http://a%25b/", "http://a]b",
         "http://[::ffff:1.2.3.4]", "http://a.b/c", "/a", "http:a", "mailto:x@y", "*", "http://", "//a",
         "http://a/b c", "http://a:80", "http://[::1]:80", "http://u:p@h", "h+t-t.p:/a", "http://a/%20", "/a?b#c",
         "http://a?b c", "/a b", "http:///x", "http://[fe80::1%25e]/", "/ä", "http://ä", 'http://a"b', "http://a<b>",
         "urn:a:b"],
        ["http://a:80:90", "http://[::1]x", "http://[::1%zz]/", "http://[::1%25%C3]/", "x:/%", "http://a[b",
         "http://[fe80::1%25]/", "a", "a/b", "http://a b", "http://a:x", "http://a:80x", "http://[::1",
         "http://u p@h", "1http://a", ":a", "h_t:/a", "http://a/%zz", "http://a%20b", "/a\n", "?a", "#a",
         "http://a\\b", "ä:/b", "", "http://a#%zz", "http://%41/", "http://[]", "http://[1.2.3.4]", "http://[a]"],
    ),
    "mac": (
        ["01:23:45:67:89:ab", "01-23-45-67-89-ab", "0123.4567.89ab", "01:23:45:67:89:ab:cd:ef",
         "0123.4567.89ab.cdef", "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00",
         "0000.0000.0000.0000.0000.0000.0000.0000.0000.0000", "0123456789ab"],
        ["01:23:45:67:89:ab:cd", "01:23:45:67:89", "01:23-45:67:89:ab", "0g:23:45:67:89:ab", "", "1:23:45:67:89:ab",
         "0123:4567:89ab", "01.23.45.67.89.ab"],
    ),
    "uuid": (
        ["5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11", "5D5A0D5C1C1F4C6A9DF52D8F0C2B1A11",
         "5d5a0d5c-1c1f4c6a-9df5-2d8f0c2b1a11"],
        ["x", "{5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11}", "5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a1K", ""],
    ),
    "uuid3": (
        ["5d5a0d5c-1c1f-3c6a-9df5-2d8f0c2b1a11"],
        ["5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"],
    ),
    "uuid4": (
        ["5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"],
        ["5d5a0d5c-1c1f-4c6a-0df5-2d8f0c2b1a11"],
    ),
    "uuid5": (
        ["5d5a0d5c-1c1f-5c6a-9df5-2d8f0c2b1a11"],
        ["5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"],
    ),
    "isbn": (
        ["0321751043", "978-0321751041", "080442957X", " 0-321 75104-3"],
        ["0321751044", "978-0321751042", "x", "080442957x", ""],
    ),
    "isbn10": (
        ["0321751043", "080442957X"],
        ["978-0321751041"],
    ),
    "isbn13": (
        ["978-0321751041", "9780321751041"],
        ["0321751043"],
    ),
    "creditcard": (
        ["4111111111111111", "4111-1111-1111-1111", "5500005555555559", "abc4111 1111 1111 1111", "340000000000009",
         "6011000000000004", "30000000000004"],
        ["4111111111111112", "x", "", "201400000000009", "2131000000000008"],
    ),
    "ssn": (
        ["123-45-6789", "123 45 6789"],
        ["123456789", "123-456789", "12-345-6789", "٣٢١-45-6789", ""],
    ),
    "hexcolor": (
        ["#fff", "fff", "#FFFFFF"],
        ["#ffff", "#ggg", ""],
    ),
    "rgbcolor": (
        ["rgb(1,2,3)", "rgb( 1 , 2 , 3 )", "rgb(19,1,1)", "rgb(199,1,1)"],
        ["rgb(256,1,1)", "rgb(01,1,1)", "rgb(1,2)", "rgb(255,255,2559", ""],
    ),
    "byte": (
        ["aGk=", "aGkx"],
        ["aGk", "", "a", "aGk=\n", "a-k_", "====", "aGk= "],
    ),
    "password": (
        ["x", ""],
        [],
    ),
    "bsonobjectid": (
        ["507f1f77bcf86cd799439011", "507F1F77BCF86CD799439011"],
        ["507f1f77bcf86cd79943901", "x", ""],
    ),
    "k8s-short-name": (
        ["a", "a-b", "x" * 63],
        ["-a", "A", "a.b", "x" * 64, ""],
    ),
    "k8s-long-name": (
        ["a.b", "x" * 64 + ".a"],
        ["a..b", "A", "x" * 254, "a.-b", ""],
    ),
    "i-pv4": (
        ["1.2.3.4"],
        ["x"],
    ),
    "datetime": (
        ["2026-01-02T03:04:05Z"],
        ["x"],
    ),
    "k8sshortname": (
        ["a"],
        ["A"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", TAKEN_AND_REFUSED)
def test_texts_are_taken_as_by_kube_apiserver(form: str) -> None:
    check, (taken, refused) = check_of(form), TAKEN_AND_REFUSED[form]
    assert check is not None
    assert [text for text in taken if not check(text)] == []
    assert [text for text in refused if check(text)] == []


def test_every_format_has_texts_and_others_have_no_check() -> None:
    assert FORMATS.keys() == {form.replace("-", "") for form in TAKEN_AND_REFUSED}
    assert check_of("x") is None and check_of("int32") is None


def test_long_texts_are_judged_at_once() -> None:
    for form, check in FORMATS.items():
        for part in ("a", "a.", "(", "a b ", "1h", "a(b)", "(a", "(()", '"', "0"):
            text = part * (50_000 // len(part))
            assert check(text) in (True, False), form
