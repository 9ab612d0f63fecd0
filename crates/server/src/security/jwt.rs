//! JSON Web Tokens (RFC 7519) in compact form. Their signatures are verified with the public keys of an issuer (RFC 7517).
//!
//! A key determines which algorithms it may be used with, and only public-key signatures are implemented. So `none` and the HMAC
//! algorithms, with which a public key could be passed off as a secret, do not have to be refused: they do not exist here.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Longest token that is parsed.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// An algorithm of RFC 7518 or RFC 8037.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    pub const ALL: [(&'static str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// Returns the algorithm of this name, if it is known.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }
}

/// A token as it was received. Nothing in it is proven until [`is_signed_by`](Self::is_signed_by) returns true.
pub(crate) struct Token<'a> {
    signed: &'a str,
    signature: Vec<u8>,
    pub algorithm: Algorithm,
    pub key_id: Option<String>,
    pub claims: Map<String, Value>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

impl<'a> Token<'a> {
    /// Parses a token, or returns why it cannot be verified. The sentence quotes nothing of the token except its algorithm.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(format!("the token has more than {TOKEN_BYTES_MAX} bytes"));
        }
        let not_one = || "the credential is neither a key of this server nor a JSON Web Token".to_owned();
        let (signed, signature) = text.rsplit_once('.').ok_or_else(not_one)?;
        let (header, claims) = signed.split_once('.').ok_or_else(not_one)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| not_one());
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| not_one())?;
        let Some(algorithm) = Algorithm::named(&header.alg) else {
            let named: String = header.alg.chars().take(16).filter(|c| !c.is_control()).collect();
            return Err(format!("the token's algorithm {named:?} is not accepted"));
        };
        if header.crit.is_some() {
            return Err("the token has critical extensions, which this server does not support".to_owned());
        }
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| not_one())?;
        Ok(Self { signed, signature: decode(signature)?, algorithm, key_id: header.kid, claims })
    }

    /// Returns a claim with a text value.
    pub fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.as_str()
    }

    /// Returns whether this key signed the token with the token's algorithm.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let (message, signature) = (self.signed.as_bytes(), &*self.signature);
        let verified = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match (&key.kind, self.algorithm) {
            _ if key.only.is_some_and(|only| only != self.algorithm) => false,
            (KeyKind::Rsa { n, e }, algorithm) => {
                let parameters = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            (KeyKind::P256(point), Algorithm::Es256) => verified(&signature::ECDSA_P256_SHA256_FIXED, point),
            (KeyKind::P384(point), Algorithm::Es384) => verified(&signature::ECDSA_P384_SHA384_FIXED, point),
            (KeyKind::Ed25519(point), Algorithm::EdDsa) => verified(&signature::ED25519, point),
            _ => false,
        }
    }
}

/// A public key of an issuer.
pub(crate) struct PublicKey {
    pub id: Option<String>,
    /// The only algorithm that it may be used with, if it names one.
    only: Option<Algorithm>,
    kind: KeyKind,
}

enum KeyKind {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

/// Parses a key set. Keys of unknown kinds and keys for encryption are left out.
pub(crate) fn read_keys(json: &[u8]) -> Result<Vec<PublicKey>, String> {
    let set: KeySet = serde_json::from_slice(json).map_err(|error| format!("it is not a JSON Web Key Set: {error}"))?;
    let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
    let keys: Vec<PublicKey> = keys.filter_map(read_key).collect();
    if keys.is_empty() { Err("it has no usable key".to_owned()) } else { Ok(keys) }
}

fn read_key(jwk: Jwk) -> Option<PublicKey> {
    if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    // A key for an unknown algorithm cannot be used with any.
    let only = match &jwk.alg {
        Some(name) => Some(Algorithm::named(name)?),
        None => None,
    };
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let point = |bytes: usize| {
        let (x, y) = (decode(&jwk.x)?, decode(&jwk.y)?);
        (x.len() == bytes && y.len() == bytes).then(|| [&[4][..], &x, &y].concat())
    };
    let kind = match (&*jwk.kty, &*jwk.crv) {
        ("RSA", _) => KeyKind::Rsa { n: decode(&jwk.n)?, e: decode(&jwk.e)? },
        ("EC", "P-256") => KeyKind::P256(point(32)?),
        ("EC", "P-384") => KeyKind::P384(point(48)?),
        ("OKP", "Ed25519") => KeyKind::Ed25519(decode(&jwk.x)?),
        _ => return None,
    };
    Some(PublicKey { id: jwk.kid, only, kind })
}
