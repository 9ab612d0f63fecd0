//! What an examination found.

use utoipa::ToSchema;

/// The findings of an examination, the most severe first.
#[derive(ToSchema)]
pub(crate) struct Diagnosis {
    /// The examined parts.
    examined: Vec<String>,
    findings: Vec<DiagnosisFinding>,
    /// The free bytes where the store is; absent if unknown or unlimited.
    free_disk_bytes: Option<u64>,
}

#[derive(ToSchema)]
struct DiagnosisFinding {
    severity: DiagnosisSeverity,
    /// For example `log acme/default` or `handler default/billing`.
    about: String,
    /// A sentence.
    what: String,
    /// The advice, as a sentence.
    advice: String,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum DiagnosisSeverity {
    Critical,
    Warning,
    Note,
}
