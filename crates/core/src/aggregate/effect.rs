//! What events do to an aggregate apart from its state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StoredEvent;
use crate::{Code, Data, Invalid, NewEvent};

/// The tags of an aggregate: keys, each with its values.
pub type Tags = BTreeMap<String, Vec<String>>;

/// What an event does to an aggregate apart from its state.
///
/// Each effect has an event type of its own, which every aggregate understands, whatever its own events are. Wow's default events with the
/// same meaning are understood too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// `aggregate_deleted`: the aggregate accepts no more commands, and queries leave it out. Nothing is removed.
    Deleted,
    /// `aggregate_recovered`: the aggregate is no longer deleted.
    Recovered,
    /// `owner_transferred` with `toOwnerId`: the aggregate belongs to another owner.
    OwnerTransferred(String),
    /// `space_transferred` with `toSpaceId`: the aggregate is in another space.
    SpaceTransferred(String),
    /// `resource_tags_applied` with `tags`: replaces all tags of the aggregate.
    TagsApplied(Tags),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToOwner {
    #[serde(alias = "targetOwnerId")]
    to_owner_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToSpace {
    to_space_id: String,
}

#[derive(Serialize, Deserialize)]
struct Applied {
    tags: Tags,
}

impl Effect {
    /// Creates the event that has this effect.
    ///
    /// # Errors
    /// `invalid_data` if a tag cannot be stored.
    pub fn event(&self) -> Result<NewEvent, Invalid> {
        let (name, data) = match self {
            Self::Deleted => ("aggregate_deleted", Ok(Data::empty())),
            Self::Recovered => ("aggregate_recovered", Ok(Data::empty())),
            Self::OwnerTransferred(to) => ("owner_transferred", Data::from_value(&ToOwner { to_owner_id: to.clone() })),
            Self::SpaceTransferred(to) => ("space_transferred", Data::from_value(&ToSpace { to_space_id: to.clone() })),
            Self::TagsApplied(tags) => ("resource_tags_applied", Data::from_value(&Applied { tags: tags.clone() })),
        };
        let data = data.map_err(|message| Invalid::new(Code::InvalidData, "tags", message))?;
        Ok(NewEvent::new(name, data))
    }

    /// Returns the effect of an event by its type. Returns `None` for an aggregate's own events, and if an effect's data cannot be read.
    pub(super) fn of(event: &StoredEvent) -> Option<Self> {
        let name = event.event_type.strip_prefix("default_").unwrap_or(&event.event_type);
        match name {
            "aggregate_deleted" => Some(Self::Deleted),
            "aggregate_recovered" => Some(Self::Recovered),
            "owner_transferred" => Some(Self::OwnerTransferred(event.data.decode::<ToOwner>().ok()?.to_owner_id)),
            "space_transferred" => Some(Self::SpaceTransferred(event.data.decode::<ToSpace>().ok()?.to_space_id)),
            "resource_tags_applied" => Some(Self::TagsApplied(event.data.decode::<Applied>().ok()?.tags)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_effect_is_read_back_from_its_event() {
        let tags = Tags::from([("region".to_owned(), vec!["eu".to_owned()])]);
        for effect in [
            Effect::Deleted,
            Effect::Recovered,
            Effect::OwnerTransferred("eva".to_owned()),
            Effect::SpaceTransferred("s-1".to_owned()),
            Effect::TagsApplied(tags),
        ] {
            let NewEvent { event_type, generation, data, .. } = effect.event().expect("storable");
            assert_eq!(Effect::of(&StoredEvent { event_type, generation, data }), Some(effect));
        }
    }

    #[test]
    fn wow_s_events_have_the_same_effects() {
        let of = |name: &str, data| Effect::of(&StoredEvent::new(name, &data).expect("an object"));
        assert_eq!(of("default_aggregate_deleted", json!({})), Some(Effect::Deleted));
        assert_eq!(of("owner_transferred", json!({"targetOwnerId": "b"})), Some(Effect::OwnerTransferred("b".into())));
        assert_eq!(of("order_placed", json!({})), None);
        assert_eq!(of("space_transferred", json!({})), None);
    }
}
