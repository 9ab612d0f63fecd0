//! `annals dead-letter policy …`.

use annals::ByteString;
use annals::dead_letters::{LetterPolicy, Strategy};
use clap::{Args, Subcommand, ValueEnum};

use super::shown::print_policy;
use crate::context::Context;
use crate::failure::Stop;
use crate::why::Why;

#[derive(Debug, Args)]
pub(super) struct PolicyCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the topics that have a policy of their own
    #[command(after_help = "Example:\n  annals dead-letter policy list --output table")]
    List,
    /// Print the policy that a topic's letters follow
    #[command(after_help = "Example:\n  annals dead-letter policy show execution_failed")]
    Show(Named),
    /// Give a topic a policy of its own
    #[command(
        after_help = "Settings that are not given keep the values of the policy in force.\n\nExample:\n  annals dead-letter policy set execution_failed --strategy manual --reason 'a person looks at each'"
    )]
    Set(Set),
    /// Let a topic follow the policy of its category again
    #[command(
        after_help = "Example:\n  annals dead-letter policy delete execution_failed --reason 'the usual will do'"
    )]
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Named {
    /// The topic
    topic: String,
}

#[derive(Debug, Args)]
struct Delete {
    /// The topic
    topic: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
struct Set {
    /// The topic
    topic: String,
    /// The strategy that determines the delays
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<Choice>,
    /// The number of retries before a letter is discarded
    #[arg(long, value_name = "COUNT")]
    max_retries: Option<u32>,
    /// The first delay, in milliseconds
    #[arg(long, value_name = "MS")]
    base_delay_ms: Option<u64>,
    /// The longest delay, in milliseconds
    #[arg(long, value_name = "MS")]
    max_delay_ms: Option<u64>,
    /// The factor between one delay and the next; at least 1
    #[arg(long, value_name = "FACTOR")]
    multiplier: Option<f64>,
    /// The share by which an exponential delay varies, 0 to 1
    #[arg(long, value_name = "SHARE")]
    jitter: Option<f64>,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Choice {
    Immediate,
    ExponentialBackoff,
    FixedInterval,
    Scheduled,
    Manual,
}

impl From<Choice> for Strategy {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Immediate => Self::Immediate,
            Choice::ExponentialBackoff => Self::ExponentialBackoff,
            Choice::FixedInterval => Self::FixedInterval,
            Choice::Scheduled => Self::Scheduled,
            Choice::Manual => Self::Manual,
        }
    }
}

impl Set {
    fn over(&self, before: LetterPolicy) -> LetterPolicy {
        LetterPolicy {
            strategy: self.strategy.map_or(before.strategy, Strategy::from),
            max_retries: self.max_retries.unwrap_or(before.max_retries),
            base_delay_ms: self.base_delay_ms.unwrap_or(before.base_delay_ms),
            max_delay_ms: self.max_delay_ms.unwrap_or(before.max_delay_ms),
            multiplier: self.multiplier.unwrap_or(before.multiplier),
            jitter: self.jitter.unwrap_or(before.jitter),
        }
    }
}

impl PolicyCommand {
    pub(super) async fn run(&self, context: &Context) -> Result<(), Stop> {
        match &self.what {
            What::List => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| {
                        let page = async |after: Option<ByteString>| {
                            let page = target.dead_letters()?.policies(after.as_deref(), 100).await?;
                            Ok((page.items, page.cursor))
                        };
                        output.pages(page, print_policy).await
                    })
                    .await
            }
            What::Show(args) => {
                context
                    .reading(annals::DEFAULT_SCOPE, async |target, output| {
                        print_policy(output, &target.dead_letters()?.policy(&args.topic).await?)
                    })
                    .await
            }
            What::Set(args) => {
                context
                    .writing(async |target, output| {
                        let letters = target.dead_letters()?;
                        let policy = args.over(letters.policy(&args.topic).await?.policy);
                        let topic = args.topic.as_str().into();
                        print_policy(output, &letters.put_policy(topic, policy, args.why.reason()).await?)
                    })
                    .await
            }
            What::Delete(args) => {
                context
                    .writing(async |target, output| {
                        let letters = target.dead_letters()?;
                        print_policy(output, &letters.delete_policy(&args.topic, args.why.reason()).await?)
                    })
                    .await
            }
        }
    }
}
