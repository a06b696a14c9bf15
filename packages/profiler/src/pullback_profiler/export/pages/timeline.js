const data = JSON.parse(byId("data").textContent);
byId("title").textContent = data.title;
drawMemory(data.memory, data.wall);
