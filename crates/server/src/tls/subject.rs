//! The subject of a certificate as a text, such as `CN=worker-1,O=acme`, in the order of the certificate.
//!
//! This parses certificates whose chain and signature rustls has verified. A subject that contains anything but plain texts has no text
//! form here, so that no client is mistaken for another.

/// The attribute types that are supported, with the last component of their object identifier 2.5.4.x.
const ATTRIBUTES: [(u8, &str); 6] = [(3, "CN"), (6, "C"), (7, "L"), (8, "ST"), (10, "O"), (11, "OU")];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
/// The tag of the version field, which certificates of version 1 lack.
const VERSION: u8 = 0xa0;

/// Returns the subject of a certificate in DER, or `None` if it has no text form.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = any(fields)?.2;
    }
    // Skips serial number, algorithm, issuer and validity.
    for _ in 0..4 {
        fields = any(fields)?.2;
    }
    let (mut names, _) = element(fields, SEQUENCE)?;
    let mut parts = Vec::new();
    while !names.is_empty() {
        let (set, rest) = element(names, SET)?;
        names = rest;
        let (attribute, more) = element(set, SEQUENCE)?;
        // Several values at one place have no defined order, so such a subject is refused.
        if !more.is_empty() {
            return None;
        }
        let (kind, value) = element(attribute, OBJECT_IDENTIFIER)?;
        let &[0x55, 0x04, kind] = kind else { return None };
        let name = ATTRIBUTES.iter().find(|(known, _)| *known == kind)?.1;
        let (tag, text, _) = any(value)?;
        let text = std::str::from_utf8(text).ok().filter(|_| matches!(tag, UTF8 | PRINTABLE | IA5))?;
        // Refuses characters that could pass for another attribute.
        if text.contains([',', '=', '+', '\\', '"']) || text.chars().any(char::is_control) {
            return None;
        }
        parts.push(format!("{name}={text}"));
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// Returns the content of an element with this tag, and the bytes that follow it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = any(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Returns an element's tag and content, and the bytes that follow it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first {
        0..=0x7f => (usize::from(first), bytes),
        0x81..=0x83 => {
            let (length, bytes) = bytes.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use super::*;

    const CLIENT: &[u8] = include_bytes!("../../tests/fixtures/client.pem");

    #[test]
    fn the_subject_of_a_certificate_is_read() {
        let certificate = CertificateDer::from_pem_slice(CLIENT).expect("a certificate");
        assert_eq!(subject(&certificate).as_deref(), Some("CN=worker-1,O=acme"));
    }

    #[test]
    fn what_is_cut_off_anywhere_has_no_subject_or_the_same() {
        let certificate = CertificateDer::from_pem_slice(CLIENT).expect("a certificate");
        for end in 0..certificate.len() {
            assert_eq!(subject(&certificate[..end]), None, "{end}");
        }
    }
}
