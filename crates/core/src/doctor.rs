//! Findings about a store, a server or a MongoDB deployment: what is wrong, and what to do first.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The severity of a finding. Findings are shown in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work, or stored data is damaged.
    Critical,
    /// It works, but someone should act, because something has stopped or will stop.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The object that it is about, for example `log acme/default` or `handler default/billing`.
    pub about: String,
    /// What was found, as a sentence.
    pub what: String,
    /// What to do, as a sentence.
    pub advice: String,
}

impl Finding {
    /// Creates a finding.
    pub fn new(
        severity: Severity,
        about: impl Into<String>,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { severity, about: about.into(), what: what.into(), advice: advice.into() }
    }
}

/// The result of an examination, most severe findings first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What was examined, each in a few words, so that a clean diagnosis shows what it covers.
    pub examined: Vec<String>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The free space where the store is, in bytes; absent if it is unknown or unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_disk_bytes: Option<u64>,
}

impl Diagnosis {
    /// Creates the diagnosis of these findings.
    pub fn new(examined: Vec<String>, mut findings: Vec<Finding>) -> Self {
        // The sort is stable, so that findings of one severity keep their order.
        findings.sort_by_key(|finding| finding.severity);
        Self { examined, findings, free_disk_bytes: None }
    }

    /// Combines it with the diagnosis of another examination.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = Self::new([self.examined, other.examined].concat(), [self.findings, other.findings].concat());
        Self { free_disk_bytes: self.free_disk_bytes.or(other.free_disk_bytes), ..both }
    }

    /// Returns the severity of the worst finding; `None` if there are no findings.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// Returns the worst finding, whose advice should be followed first, unless it is a note.
    pub fn first(&self) -> Option<&Finding> {
        self.findings.iter().filter(|finding| finding.severity < Severity::Note).min_by_key(|finding| finding.severity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(severity: Severity, about: &str) -> Finding {
        Finding::new(severity, about, "It is so.", "Do something.")
    }

    #[test]
    fn what_is_worst_comes_first_and_is_to_be_mended_first() {
        let store = Diagnosis::new(
            vec!["the store".to_owned()],
            vec![found(Severity::Note, "a"), found(Severity::Warning, "b"), found(Severity::Warning, "c")],
        );
        assert_eq!(store.first().map(|finding| &*finding.about), Some("b"));
        let server = Diagnosis::new(vec!["the server".to_owned()], vec![found(Severity::Critical, "d")]);
        let both = store.and(server);
        let order: Vec<_> = both.findings.iter().map(|finding| &*finding.about).collect();
        assert_eq!(order, ["d", "b", "c", "a"]);
        assert_eq!((both.worst(), both.examined.len()), (Some(Severity::Critical), 2));
    }

    #[test]
    fn a_note_alone_is_nothing_to_do() {
        let noted = Diagnosis::new(Vec::new(), vec![found(Severity::Note, "a")]);
        assert_eq!((noted.worst(), noted.first()), (Some(Severity::Note), None));
        assert_eq!(Diagnosis::default().worst(), None);
    }
}
