//! What an examination found.

use utoipa::ToSchema;

/// What an examination found, the most severe first.
#[derive(ToSchema)]
pub(crate) struct Diagnosis {
    /// What was examined.
    examined: Vec<String>,
    findings: Vec<DiagnosisFinding>,
    /// How many bytes are free where the store is; absent where nobody knows or nothing limits it.
    free_disk_bytes: Option<u64>,
}

#[derive(ToSchema)]
struct DiagnosisFinding {
    severity: DiagnosisSeverity,
    /// For example `log acme/default` or `handler default/billing`.
    about: String,
    /// A sentence.
    what: String,
    /// What to do, as a sentence.
    advice: String,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum DiagnosisSeverity {
    Critical,
    Warning,
    Note,
}
