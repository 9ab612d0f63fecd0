//! The stored form of projections.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::ProjectionDefinition;
use crate::browse::{BROWSE_VIEW, EVENTS};
use crate::{Code, Invalid, RecordType, Timestamp};

/// The collection of definitions.
pub const PROJECTIONS: &str = "annals-projections";

/// A projection: its live build, the build that will replace it, and dropped builds. A swap is one batch that changes this record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectionRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The build that reads see; null once the projection is deleted.
    pub live: Option<BuildRecord>,
    /// The build that replaces it once it has caught up.
    pub building: Option<BuildRecord>,
    /// Builds whose records are to be removed.
    pub dropped: Vec<DroppedRecord>,
    /// Whether an operator paused it.
    pub paused: bool,
    /// The number of builds so far.
    pub builds: i64,
    /// Counts resumptions. After each one, a build that stopped at an event attempts it again.
    pub resumed: i64,
    /// When it was first defined.
    pub defined: DateTime,
}

/// A build of a projection: a definition and the location of its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// Its number, unique within the projection.
    pub number: i64,
    /// The number of the collection that it fills.
    pub slot: i64,
    /// The body of its definition, as JSON.
    pub definition: String,
    /// When it was started.
    pub since: DateTime,
    /// Why it was started.
    pub reason: String,
}

/// A build whose records are to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedRecord {
    /// Its number.
    pub number: i64,
    /// The number of the collection that it filled.
    pub slot: i64,
}

impl RecordType for ProjectionRecord {
    const COLLECTION: &'static str = PROJECTIONS;
    // Processes that fold a projection follow the changes that others make to its definition.
    const FEED: bool = true;
}

impl ProjectionRecord {
    /// Creates a projection without a build.
    pub fn new(name: &str, at: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            live: None,
            building: None,
            dropped: Vec::new(),
            paused: false,
            builds: 0,
            resumed: 0,
            defined: DateTime::from_millis(at.as_millis()),
        }
    }

    /// Returns the build with this number, and whether it is the live one.
    pub fn build(&self, number: i64) -> Option<(&BuildRecord, bool)> {
        let live = self.live.iter().map(|build| (build, true));
        live.chain(self.building.iter().map(|build| (build, false))).find(|(build, _)| build.number == number)
    }

    /// Returns the newest definition: the one that is being built, otherwise the live one.
    pub fn newest(&self) -> Option<&BuildRecord> {
        self.building.as_ref().or(self.live.as_ref())
    }

    /// Starts a build of a definition in a collection that no other build uses.
    pub fn begin(&mut self, definition: String, reason: String, at: Timestamp) -> BuildRecord {
        let builds = self.live.iter().chain(&self.building).map(|build| build.slot);
        let taken: Vec<i64> = builds.chain(self.dropped.iter().map(|dropped| dropped.slot)).collect();
        let slot = (1..).find(|slot| !taken.contains(slot)).unwrap_or(0);
        self.builds += 1;
        BuildRecord { number: self.builds, slot, definition, since: DateTime::from_millis(at.as_millis()), reason }
    }

    /// Drops a build.
    pub fn drop_build(&mut self, build: &BuildRecord) {
        self.dropped.push(DroppedRecord { number: build.number, slot: build.slot });
    }

    /// Returns the name of the collection of a slot.
    pub fn collection_of(&self, slot: i64) -> String {
        match (self.name == BROWSE_VIEW, slot) {
            (true, 1) => EVENTS.to_owned(),
            (true, slot) => format!("{EVENTS}-{slot}"),
            (false, slot) => format!("annals-projection-{}-{slot}", self.name),
        }
    }

    /// Returns the name of the processor of a build.
    pub fn processor_of(&self, number: i64) -> String {
        format!("projection/{}/{number}", self.name)
    }
}

impl BuildRecord {
    /// Returns the definition.
    ///
    /// # Errors
    /// `invalid_projection` if other software replaced it by something that is not a definition.
    pub fn read(&self, name: &str) -> Result<ProjectionDefinition, Invalid> {
        ProjectionDefinition::read_stored(name, self.definition.as_bytes()).map_err(|error| {
            let path = format!("{PROJECTIONS}/{name}");
            Invalid::new(Code::InvalidProjection, path, format!("is stored with an invalid definition: {error}"))
        })
    }
}
