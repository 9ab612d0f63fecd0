//! The programs that the demo submits itself, one for each way in which a program can end.

use annals::queue::QueuePriority;
use annals::{CommitError, EventLog, Uuid};

use crate::submission::Submission;

/// The owner of the programs.
const OWNER: &str = "demo";

struct Sample {
    /// Fixed, so that a second start recognises what the first one submitted.
    id: u128,
    language: &'static str,
    timeout_seconds: u64,
    memory_limit_mb: u64,
    script: &'static str,
}

const SAMPLES: [Sample; 7] = [
    Sample {
        id: 0x5a1e_0001_6f0c_4d52_9d3e_2b7f_81c4_a601,
        language: "python",
        timeout_seconds: 10,
        memory_limit_mb: 128,
        script: "# The first 15 Fibonacci numbers\na, b = 0, 1\nfor _ in range(15):\n    print(a, end=\" \")\n    a, b = b, a + b\nprint()\n",
    },
    Sample {
        id: 0x5a1e_0002_0b7a_4c19_8e55_94d0_3fe2_7c02,
        language: "python",
        timeout_seconds: 10,
        memory_limit_mb: 128,
        script: "# Gives up with exit code 3\nimport sys\nprint(\"looking for work\")\nsys.exit(3)\n",
    },
    Sample {
        id: 0x5a1e_0003_c5d8_4f30_a1b6_0e69_5d18_4203,
        language: "python",
        timeout_seconds: 2,
        memory_limit_mb: 128,
        script: "# Never ends, but has only 2 seconds\nprint(\"round and round\")\nwhile True:\n    pass\n",
    },
    Sample {
        id: 0x5a1e_0004_72e9_4ab4_b70d_6c21_fa95_1804,
        language: "python",
        timeout_seconds: 10,
        memory_limit_mb: 128,
        script: "# Wants more memory than it may have\nhoard = []\nwhile True:\n    hoard.append(bytearray(8 * 1024 * 1024))\n    print(f\"{8 * len(hoard)} MiB\")\n",
    },
    Sample {
        id: 0x5a1e_0005_1f46_4083_93ca_d87b_206e_f505,
        language: "python",
        timeout_seconds: 10,
        memory_limit_mb: 128,
        script: "# Speaks many languages\nprint(\"Grüße · Привет · 你好 · こんにちは · שלום · 🦀\")\n",
    },
    Sample {
        id: 0x5a1e_0006_e83b_4617_85f2_17a4_c90d_3b06,
        language: "python",
        timeout_seconds: 10,
        memory_limit_mb: 128,
        script: "# Complains, yet succeeds\nimport sys\nprint(\"warning: the cake is a lie\", file=sys.stderr)\nprint(\"done\")\n",
    },
    Sample {
        id: 0x5a1e_0007_94c1_4e6d_ac08_b35e_7712_d907,
        language: "sh",
        timeout_seconds: 10,
        memory_limit_mb: 128,
        script: "# A shell script that counts\nfor n in 1 2 3; do echo \"line $n\"; done\necho \"in $(basename \"$PWD\")\"\n",
    },
];

/// Submits the samples that were never submitted to this log.
///
/// # Errors
/// The error of the log. Earlier samples are submitted; calling it again submits the rest.
pub(crate) async fn submit(log: &dyn EventLog) -> Result<(), CommitError> {
    for sample in &SAMPLES {
        let submission = Submission {
            execution_id: None,
            script: sample.script.to_owned(),
            language: sample.language.to_owned(),
            timeout_seconds: sample.timeout_seconds,
            language_version: None,
            memory_limit_mb: sample.memory_limit_mb,
            priority: QueuePriority::Normal,
        };
        match submission.commit(Uuid::from_u128(sample.id), OWNER, log).await {
            // Another version of Python, or of this demo, submitted it with other fields. It is submitted all the same.
            Ok(_) | Err(CommitError::RequestIdReused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
