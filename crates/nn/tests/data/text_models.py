"""Writes the files that tests/it/text.rs compares with: tiny text models with random weights, run by `transformers` and
PyTorch in evaluation mode. For each model a folder as Hugging Face saves it (config.json, model.safetensors) and
expected.safetensors with tokens, logits, the loss and the gradient of every tensor.

    python crates/nn/tests/data/text_models.py
"""
import json, os
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 3
# Texts of different lengths, including one token.
TEXTS = [[2, 5, 9, 3], [2, 31, 7, 7, 11, 30, 12, 3], [2], [2, 4, 8, 15, 16, 23, 3, 1, 6, 9, 10, 20]]
LABELS = [0, 2, 1, 2]


class Classifier(torch.nn.Module):
    """First token, dense, ReLU, (dropout,) dense: the classifier of DistilBertForSequenceClassification."""

    def __init__(self, encoder, width):
        super().__init__()
        self.encoder = encoder
        self.pre_classifier = torch.nn.Linear(width, width)
        self.classifier = torch.nn.Linear(width, CLASSES)

    def forward(self, ids):
        first = self.encoder(input_ids=torch.tensor([ids])).last_hidden_state[:, 0]
        return self.classifier(torch.relu(self.pre_classifier(first)))


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 6)
        self.lstm = torch.nn.LSTM(6, 5, batch_first=True)
        self.fc = torch.nn.Linear(5, CLASSES)

    def forward(self, ids):
        _, (hidden, _) = self.lstm(self.embedding(torch.tensor([ids])))
        return self.fc(hidden[0])


def write(name, model, names, config=None):
    folder = f"{HERE}/{name}"
    os.makedirs(folder, exist_ok=True)
    model.eval()
    # Weights far enough from their initial values that every part matters.
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn(value.shape, generator=generator) * 0.3)
    logits = torch.cat([model(ids) for ids in TEXTS])
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS))
    loss.backward()
    weights, expected = {}, {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    for key, value in model.named_parameters():
        if names(key):
            weights[names(key)] = value.detach().clone()
            if "pooler" not in key:
                expected["gradient/" + names(key)] = value.grad.clone()
    expected["ids"] = torch.tensor(sum(TEXTS, []), dtype=torch.float32)
    expected["lengths"] = torch.tensor([float(len(t)) for t in TEXTS])
    expected["labels"] = torch.tensor(LABELS, dtype=torch.float32)
    save_file(weights, f"{folder}/model.safetensors")
    save_file(expected, f"{folder}/expected.safetensors")
    if config:
        json.dump(config.to_diff_dict(), open(f"{folder}/config.json", "w"), indent=1, sort_keys=True)


torch.manual_seed(1)
plain = lambda key: key.removeprefix("encoder.") if key.startswith("encoder.") else key
bert = BertConfig(vocab_size=32, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
                  max_position_embeddings=16, type_vocab_size=2)
write("tiny-bert", Classifier(BertModel(bert), 12), plain, bert)
distil = DistilBertConfig(vocab_size=32, dim=12, n_layers=2, n_heads=3, hidden_dim=20, max_position_embeddings=16)
named = lambda key: "distilbert." + key.removeprefix("encoder.") if key.startswith("encoder.") else key
write("tiny-distilbert", Classifier(DistilBertModel(distil), 12), named, distil)
write("tiny-lstm", Recurrent(), lambda key: key)


def minilm(folder):
    """The values that tests/it/text.rs expects from the real MiniLM."""
    from transformers import AutoModel, AutoTokenizer
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    texts = ["", "A gripping, funny film.", "Oil prices fell below $40 a barrel on Tuesday, says OPEC!",
             "caf\u00e9 na\u00efve \u4f60\u597d unbelievablyxyz", "the " * 150,
             "It 's a lovely film with lovely performances by Buy and Accorsi ."]
    torch.manual_seed(3)
    head = torch.nn.Linear(384, 5)
    ids = [tokenizer(t, truncation=True, max_length=128)["input_ids"] for t in texts]
    with torch.no_grad():
        first = [model(torch.tensor([i])).last_hidden_state[0, 0] for i in ids]
        out = {"texts": texts, "ids": ids, "first": [f.tolist() for f in first],
               "logits": [head(f).tolist() for f in first], "weight": head.weight.tolist(), "bias": head.bias.tolist()}
    json.dump(out, open(f"{HERE}/minilm.json", "w"))


if os.environ.get("FEDELITY_DATA"):
    minilm(os.environ["FEDELITY_DATA"] + "/minilm")
