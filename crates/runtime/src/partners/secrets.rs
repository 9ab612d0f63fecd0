//! Secrets at rest: AES-256-GCM with a key from the configuration.

use std::fmt;
use std::sync::Arc;

use annals_core::bson::Binary;
use annals_core::bson::spec::BinarySubtype;
use annals_core::partners::{PartnerError, SecretsRecord, SigningSecret};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;

/// The keys that encrypt the secrets of partners: the first key encrypts, all of them decrypt. Its `Debug` form does not show them.
#[derive(Clone)]
pub struct PartnerKeys(Arc<Vec<Key>>);

struct Key {
    id: String,
    key: LessSafeKey,
}

impl fmt::Debug for PartnerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl PartnerKeys {
    /// Reads keys, the current one first, each 32 random bytes in base64.
    ///
    /// # Errors
    /// A message that says what is wrong, without the key.
    pub fn read<'a>(keys: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let read = |text: &str| {
            let wrong = || "is not the base64 of 32 random bytes; `openssl rand -base64 32` generates one".to_owned();
            let bytes = STANDARD.decode(text.trim()).map_err(|_| wrong())?;
            Key::of(&bytes).ok_or_else(wrong)
        };
        let keys = keys.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err("the file holds no key".to_owned()) } else { Ok(Self(Arc::new(keys))) }
    }

    /// Returns a publicly known key, for development.
    pub fn for_development() -> Self {
        Self(Arc::new(Key::of(&[0x41; 32]).into_iter().collect()))
    }

    /// Encrypts the secrets of a partner.
    pub(super) fn encrypt(
        &self,
        tenant: &str,
        partner: &str,
        secrets: &[SigningSecret],
        mut random: impl FnMut() -> u128,
    ) -> Result<SecretsRecord, PartnerError> {
        let failed = || PartnerError::Key("encryption failed".to_owned());
        let key = self.0.first().ok_or_else(failed)?;
        let encrypted = secrets.iter().map(|secret| {
            let mut nonce = [0; NONCE_LEN];
            nonce.copy_from_slice(&random().to_be_bytes()[..NONCE_LEN]);
            let mut bytes = secret.reveal().into_bytes();
            let sealing = Nonce::assume_unique_for_key(nonce);
            let tag = key.key.seal_in_place_separate_tag(sealing, aad(tenant, partner), &mut bytes);
            let tag = tag.map_err(|_| failed())?;
            let bytes = [&nonce[..], &bytes, tag.as_ref()].concat();
            Ok(Binary { subtype: BinarySubtype::Generic, bytes })
        });
        let secrets = encrypted.collect::<Result<Vec<_>, PartnerError>>()?;
        Ok(SecretsRecord { id: partner.to_owned(), key: key.id.clone(), secrets })
    }

    /// Decrypts the secrets of a partner.
    pub(super) fn decrypt(&self, tenant: &str, record: &SecretsRecord) -> Result<Vec<SigningSecret>, PartnerError> {
        let Some(key) = self.0.iter().find(|key| key.id == record.key) else {
            let message = format!(
                "the secrets of partner {} were encrypted with key {}, which is not configured",
                record.id, record.key
            );
            return Err(PartnerError::Key(message));
        };
        let failed = || PartnerError::Key(format!("the stored secrets of partner {} are corrupt", record.id));
        let decrypted = record.secrets.iter().map(|secret| {
            let (nonce, sealed) = secret.bytes.split_at_checked(NONCE_LEN).ok_or_else(failed)?;
            let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
            let mut sealed = sealed.to_vec();
            let bytes = key.key.open_in_place(nonce, aad(tenant, &record.id), &mut sealed).map_err(|_| failed())?;
            let text = std::str::from_utf8(bytes).map_err(|_| failed())?;
            SigningSecret::read(text).map_err(|_| failed())
        });
        decrypted.collect()
    }
}

impl Key {
    fn of(bytes: &[u8]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?);
        let digest = digest::digest(&digest::SHA256, bytes);
        let id = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { id, key })
    }
}

/// Binds a ciphertext to one partner, so that it cannot be used in another's record.
fn aad(tenant: &str, partner: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("annals partner secret/{tenant}/{partner}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> String {
        STANDARD.encode([byte; 32])
    }

    #[test]
    fn secrets_are_decrypted_for_the_partner_that_they_are_of_and_with_any_configured_key() {
        let old = PartnerKeys::read([&*key(1)]).expect("a key");
        let both = PartnerKeys::read([&*key(2), &*key(1)]).expect("keys");
        let secrets = vec![SigningSecret::of_bytes(vec![7; 24]), SigningSecret::of_bytes(vec![8; 32])];
        let mut count = 0;
        let record = old
            .encrypt("t", "p", &secrets, || {
                count += 1_u128 << 64;
                count
            })
            .expect("encrypted");
        let stored = format!("{:?}", record.secrets);
        assert!(!stored.contains(&secrets[0].reveal()) && record.secrets[0] != record.secrets[1]);
        assert_eq!(both.decrypt("t", &record), Ok(secrets));
        let new = PartnerKeys::read([&*key(2)]).expect("a key");
        assert!(new.decrypt("t", &record).expect_err("the key is gone").to_string().contains("not configured"));
        assert!(both.decrypt("other", &record).is_err());
        assert!(both.decrypt("t", &SecretsRecord { id: "q".into(), ..record }).is_err());
        for wrong in ["", "c2hvcnQ=", "!"] {
            assert!(PartnerKeys::read([wrong]).is_err(), "{wrong}");
        }
    }
}
