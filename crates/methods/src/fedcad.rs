//! FedCAD: He, Chen, Yang, Zhang, Zeng, "Class-Wise Adaptive Self Distillation for Heterogeneous Federated Learning",
//! FL-AAAI 2022.
//!
//!   L       = (1 - alpha_y) L_c + alpha_y L_d,   L_c and L_d as in FedLSD                        (5)
//!   alpha_y = (gamma - beta) / 2 * E_{x|y}[phi(y, p^g(x))] + (gamma + beta) / 2                  (6)
//!   phi     = p^g_y - sum_{k != y} p^g_k
//!
//! The server measures how well the global model knows each class, so clients trust it where it is good and their own
//! labels where it is not. Early on it knows nothing, and with beta = 0 the method begins as FedAvg.
//!
//! Probabilities add up to 1, so phi = 2 p^g_y - 1 and alpha_y = beta + (gamma - beta) * E_{x|y}[p^g_y]: from beta,
//! where the teacher gives the true class no probability, to gamma, where it is certain. That is what we compute.
//!
//! Deviations. The paper leaves open whether p^g in (6) is at temperature T; ours is at 1. A class missing from the
//! auxiliary samples has no expectation; it gets beta, the least trust. With gamma = beta every alpha_y is known
//! without auxiliary samples, so none are required. Means and tau^2 as in FedLSD, whose loss is shared: FedCAD(c, c) is
//! FedLSD(c), bit for bit.

use fedelity_fl::{Extra, Local, Method, Needs, Payload, Result, Server, Step, Teacher, Terms};
use fedelity_keys::{KeyError, method};
use fedelity_nn::Model;
use fedelity_nn::loss::Kl;

use crate::auxiliary::class_means;
use crate::distil::mixed;

/// In the broadcast: alpha_y for each class.
const CLASS_ALPHA: &str = "class-alpha";

/// Learn from the global model's outputs, the more so the better it knows a sample's class.
#[method(
    id = "fedcad",
    title = "FedCAD",
    reference = "He et al., FL-AAAI 2022, eqs. 5 and 6",
    equation = "L = (1 - alpha_y) CE + alpha_y KL(p^g || p),  alpha_y = beta + (gamma - beta) E_{x|y}[p^g_y]",
    helps = "On CIFAR-10 with ten clients, 73.1 % against FedAvg's 71.3 % at Dirichlet 0.5, and 63.8 % against 61.7 \
             % at 0.1 (FedCAD, Table 2). The server must hold labelled samples of every class.",
    check = ordered
)]
pub struct FedCad {
    /// The teacher's share for a class it does not know. At most gamma.
    #[key(default = 0.0, min = 0, max = 1, paper = "best of 0, 0.3, 0.5, 0.7", zero = fedavg)]
    pub beta: f32,
    /// The teacher's share for a class it is certain of. At least beta.
    #[key(default = 0.5, min = 0, max = 1, paper = "best of 0, 0.3, 0.5, 0.7", zero = fedavg)]
    pub gamma: f32,
    /// Temperature of both softmaxes in the distillation term.
    #[key(symbol = "T", default = 2.0, above = 0, paper = "2 for FedLSD, not stated for FedCAD")]
    pub tau: f32,
    /// Whether to multiply the distillation term by tau^2. If not, it shrinks as tau grows.
    #[key(symbol = "T^2", default = false, paper = "not in FedCAD; on in FedNTD's eq. 3")]
    pub tau_squared: bool,
}

fn ordered(FedCad { beta, gamma, .. }: &FedCad) -> Result<(), KeyError> {
    if beta <= gamma {
        Ok(())
    } else {
        Err(KeyError::expected("gamma", gamma, format!("at least beta, which is {beta}")))
    }
}

impl Method for FedCad {
    fn needs(&self) -> Needs {
        Needs { auxiliary: self.beta != self.gamma, extra_passes: 1, ..Needs::default() }
    }

    fn receives(&self, model: &Model) -> Vec<Extra> {
        vec![Extra::always(CLASS_ALPHA, model.classes())]
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        let known = match self.beta == self.gamma {
            true => vec![0.0; server.model.classes()],
            false => class_means(self, server, 1, |sum, y, _, p| sum[0] += f64::from(p[y]))?,
        };
        let (beta, gamma) = (f64::from(self.beta), f64::from(self.gamma));
        let alpha: Vec<f32> = known.into_iter().map(|p_y| (beta + (gamma - beta) * p_y) as f32).collect();
        Ok(Payload::new().with(CLASS_ALPHA, alpha))
    }

    fn teachers(&self, _: &Local<'_>) -> Result<Vec<Teacher>> {
        Ok(vec![Teacher::global()])
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let alpha = local.down.get_sized(CLASS_ALPHA, step.classes)?;
        let how = Kl { tau: self.tau, tau_squared: self.tau_squared, ..Kl::default() };
        Ok(mixed(local, step, &how, |y| alpha[y]))
    }
}
