//! The partners as known to the owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_core::partners::{
    PartnerArchive, PartnerDefinition, PartnerError, PartnerRecord, SELECTION, SecretsRecord, SelectionRecord,
    SigningSecret,
};
use annals_core::{Matcher, RecordError, SequenceNumber, TypedRecords, limits};

use super::{TenantPartners, absent};

/// All partners of a tenant at one point in time.
pub(super) struct Known {
    /// Counts the changes of definitions.
    pub generation: i64,
    pub partners: BTreeMap<String, Arc<Partner>>,
}

/// A partner at one point in time.
pub(super) struct Partner {
    pub definition: PartnerDefinition,
    pub from: SequenceNumber,
    pub matcher: Option<Matcher>,
    pub secrets: Result<Vec<SigningSecret>, PartnerError>,
    /// Counts the changes of `archive`.
    pub archive_turn: i64,
    copied_turn: i64,
}

impl Partner {
    /// Returns whether events that ended before the partner was archived may have no copies.
    pub fn has_older(&self) -> bool {
        self.definition.archive != PartnerArchive::None && self.copied_turn != self.archive_turn
    }
}

impl Known {
    /// Returns the first sequence number from which any partner selects; `None` if none selects.
    pub fn from(&self) -> Option<SequenceNumber> {
        self.partners.values().filter(|partner| partner.matcher.is_some()).map(|partner| partner.from).min()
    }
}

impl TenantPartners {
    /// Reads all partners. The generation is read first, so that a definition that changes meanwhile is noticed.
    pub(super) async fn load(&self) -> Result<Known, RecordError> {
        let selection = self.selection().await?;
        let records = TypedRecords::<PartnerRecord>::declared(Arc::clone(&self.records));
        let mut query = TypedRecords::<PartnerRecord>::query().limit(limits::PAGE_MAX);
        let mut partners = BTreeMap::new();
        loop {
            let (found, next) = records.find(query.clone()).await?;
            for record in found {
                let record = record.value;
                match record.read() {
                    Ok(definition) => {
                        let partner = self.partner(definition, &record).await?;
                        partners.insert(record.id, Arc::new(partner));
                    }
                    Err(error) => tracing::error!(partner = record.id, %error, "cannot read a partner's definition"),
                }
            }
            match next {
                Some(cursor) => query = query.after(cursor),
                None => break,
            }
        }
        Ok(Known { generation: selection.map_or(0, |selection| selection.generation), partners })
    }

    async fn partner(&self, definition: PartnerDefinition, record: &PartnerRecord) -> Result<Partner, RecordError> {
        let secrets = match self.secrets(&definition.id).await {
            Err(PartnerError::Store(error)) => return Err(error.into()),
            secrets => secrets,
        };
        let matcher = definition.select.as_ref().map(Matcher::new);
        let from = record.from.cast_unsigned();
        let (archive_turn, copied_turn) = (record.archive_turn, record.copied_turn);
        Ok(Partner { definition, from, matcher, secrets, archive_turn, copied_turn })
    }

    /// Reads up to where events of the log have been selected.
    pub(super) async fn selection(&self) -> Result<Option<SelectionRecord>, RecordError> {
        let records = TypedRecords::<SelectionRecord>::declared(Arc::clone(&self.records));
        Ok(absent(records.get(SELECTION).await)?.map(|found| found.value))
    }

    /// Decrypts the secrets of a partner.
    pub(super) async fn secrets(&self, partner: &str) -> Result<Vec<SigningSecret>, PartnerError> {
        let records = TypedRecords::<SecretsRecord>::declared(Arc::clone(&self.records));
        let Some(found) = absent(records.get(partner).await)? else { return Ok(Vec::new()) };
        let keys = self.shared.options.partners.keys.as_ref();
        let keys = keys.ok_or_else(|| {
            PartnerError::Key("the server has no key to decrypt secrets with; configure partners.key_file".to_owned())
        })?;
        keys.decrypt(&self.tenant, &found.value)
    }
}
