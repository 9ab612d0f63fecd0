//! Signatures of the Standard Webhooks specification: HMAC-SHA256 over id, time and body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::Timestamp;

/// How far the timestamp of a request may be from now, in seconds, in either direction.
pub const TOLERANCE_SECONDS: i64 = 300;
/// The prefix of a secret.
const PREFIX: &str = "whsec_";
/// The allowed length of a secret, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=128;
/// The prefix of a signature.
const VERSION: &str = "v1,";
/// The length of a signature, in bytes.
const SIGNATURE_BYTES: usize = 32;
/// The longest id of a request, in bytes.
const ID_BYTES_MAX: usize = 256;

/// A secret for signing. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

/// The headers that authenticate a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signed {
    /// `webhook-id`: the same for every attempt of one event.
    pub id: String,
    /// `webhook-timestamp`: seconds since 1970-01-01 UTC, of the attempt.
    pub timestamp: String,
    /// `webhook-signature`: one or more signatures, separated by spaces.
    pub signature: String,
}

/// Why a request cannot be attributed to the partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// A header is missing or cannot be parsed.
    #[error("the request needs the headers webhook-id, webhook-timestamp (seconds since 1970) and webhook-signature")]
    Headers,
    /// The timestamp is too old or in the future.
    #[error(
        "webhook-timestamp is more than {TOLERANCE_SECONDS} s from now; sign each attempt with its own time and check the clock"
    )]
    Stale,
    /// The signature matches none of the partner's secrets.
    #[error(
        "the signature matches no secret of this partner; sign `id.timestamp.body` with HMAC-SHA256 as Standard Webhooks says"
    )]
    Signature,
}

impl SigningSecret {
    /// Parses a secret: `whsec_` and the base64 of 16 to 128 random bytes.
    ///
    /// # Errors
    /// A sentence that says what is wrong, without the secret.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || "is not whsec_ followed by the base64 of 16 to 128 random bytes".to_owned();
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX).ok_or_else(wrong)?).map_err(|_| wrong())?;
        if SECRET_BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(wrong()) }
    }

    /// Creates a secret from random bytes.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the secret as text, in the form that [`read`](Self::read) parses.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
        // HMAC accepts keys of any length, so this never fails.
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0).ok()?;
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        Some(mac)
    }
}

impl Signed {
    /// Signs a body with every secret, so that a receiver that has any one of them accepts it.
    pub fn sign(secrets: &[SigningSecret], id: &str, at: Timestamp, body: &[u8]) -> Self {
        let timestamp = at.as_millis().div_euclid(1_000).to_string();
        let signature = |secret: &SigningSecret| {
            let mac = secret.mac(id, &timestamp, body)?;
            Some(format!("{VERSION}{}", STANDARD.encode(mac.finalize().into_bytes())))
        };
        let signature = secrets.iter().filter_map(signature).collect::<Vec<_>>().join(" ");
        Self { id: id.to_owned(), timestamp, signature }
    }

    /// Checks that one of the secrets signed this body, within the tolerance. All signatures of the header are compared, each in constant
    /// time; the limit on the size of headers bounds their number.
    ///
    /// # Errors
    /// See [`Unsigned`].
    pub fn verify(&self, secrets: &[SigningSecret], now: Timestamp, body: &[u8]) -> Result<(), Unsigned> {
        let printable = self.id.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        if self.id.is_empty() || self.id.len() > ID_BYTES_MAX || !printable || self.signature.is_empty() {
            return Err(Unsigned::Headers);
        }
        let at: i64 = self.timestamp.parse().map_err(|_| Unsigned::Headers)?;
        if now.as_millis().div_euclid(1_000).abs_diff(at) > TOLERANCE_SECONDS.unsigned_abs() {
            return Err(Unsigned::Stale);
        }
        let given: Vec<Vec<u8>> = self
            .signature
            .split(' ')
            .filter_map(|signature| STANDARD.decode(signature.strip_prefix(VERSION)?).ok())
            .filter(|signature| signature.len() == SIGNATURE_BYTES)
            .collect();
        let matches = |secret: &SigningSecret| {
            let mac = secret.mac(&self.id, &self.timestamp, body);
            mac.is_some_and(|mac| given.iter().any(|given| mac.clone().verify_slice(given).is_ok()))
        };
        if secrets.iter().any(matches) { Ok(()) } else { Err(Unsigned::Signature) }
    }
}

/// Returns the SHA-256 of a body as 64 hexadecimal digits, which distinguishes a repeat from another event with the same id.
pub fn content_digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SigningSecret {
        SigningSecret::read(text).expect("a secret")
    }

    /// The example of the specification.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let at = Timestamp::from_millis(1_614_265_330_999);
        let signed = Signed::sign(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, br#"{"test": 2432232314}"#);
        assert_eq!(signed.signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(signed.timestamp, "1614265330");
    }

    #[test]
    fn one_of_several_secrets_on_either_side_is_enough() {
        let (old, new) = (SigningSecret::of_bytes(vec![1; 24]), SigningSecret::of_bytes(vec![2; 24]));
        let now = Timestamp::from_millis(1_700_000_000_000);
        let both = Signed::sign(&[new.clone(), old.clone()], "m", now, b"{}");
        for secrets in [vec![old.clone()], vec![new.clone()], vec![SigningSecret::of_bytes(vec![3; 24]), old.clone()]] {
            assert_eq!(both.verify(&secrets, now, b"{}"), Ok(()));
        }
        let one = Signed::sign(std::slice::from_ref(&old), "m", now, b"{}");
        assert_eq!(one.verify(&[new], now, b"{}"), Err(Unsigned::Signature));
        let others: Vec<_> = (10..60).map(|n| SigningSecret::of_bytes(vec![n; 24])).collect();
        let last = Signed::sign(&[others, vec![old.clone()]].concat(), "m", now, b"{}");
        assert_eq!(last.verify(&[old], now, b"{}"), Ok(()), "the last of many");
    }

    #[test]
    fn what_is_changed_stale_or_incomplete_is_not_signed() {
        let secrets = [SigningSecret::of_bytes(vec![1; 24])];
        let now = Timestamp::from_millis(1_700_000_000_000);
        let good = Signed::sign(&secrets, "m", now, b"{}");
        assert_eq!(good.verify(&secrets, now, b"{} "), Err(Unsigned::Signature));
        assert_eq!(Signed { id: "n".into(), ..good.clone() }.verify(&secrets, now, b"{}"), Err(Unsigned::Signature));
        let later = Signed { timestamp: "1700000001".into(), ..good.clone() };
        assert_eq!(later.verify(&secrets, now, b"{}"), Err(Unsigned::Signature));
        for seconds in [-301_i64, 301] {
            let then = Timestamp::from_millis(now.as_millis() + seconds * 1_000);
            assert_eq!(good.verify(&secrets, then, b"{}"), Err(Unsigned::Stale));
        }
        for signed in [
            Signed { id: String::new(), ..good.clone() },
            Signed { timestamp: "now".into(), ..good.clone() },
            Signed { timestamp: i64::MIN.to_string() + "0", ..good.clone() },
            Signed { signature: String::new(), ..good.clone() },
        ] {
            assert_eq!(signed.verify(&secrets, now, b"{}"), Err(Unsigned::Headers));
        }
        let other_version = Signed { signature: good.signature.replace("v1,", "v2,"), ..good };
        assert_eq!(other_version.verify(&secrets, now, b"{}"), Err(Unsigned::Signature));
    }

    #[test]
    fn a_secret_is_read_as_it_is_written_and_not_shown() {
        let secret = SigningSecret::of_bytes(vec![7; 24]);
        assert_eq!(SigningSecret::read(&secret.reveal()), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
        for wrong in ["", "whsec_", "secret", "whsec_!", "whsec_c2hvcnQ="] {
            assert!(SigningSecret::read(wrong).is_err(), "{wrong}");
        }
    }
}
